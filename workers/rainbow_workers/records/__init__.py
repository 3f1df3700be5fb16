"""Records: events of jobs in, the ledger out.

In: signed events of agents and schedulers. Out: job records in the store, and updates for those who watch.
Call `recorder.Recorder`, a worker.
"""
