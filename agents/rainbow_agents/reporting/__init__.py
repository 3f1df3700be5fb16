"""From the executor to the broker: events, heartbeats and output.

In: what the executor reports and the journal keeps. Out: signed messages to the scheduler.
Called by the agent; nothing here decides about a job.
"""
