"""From the queue to the executor.

In: deliveries of the queue of the cluster. Out: jobs submitted to the executor, or rejections with a reason.
Call `intake.Intake`; its stages are receiver, validation, admission, finalizer.
"""
