"""Scheduling: submissions in, dispatches out.

In: submissions and returned dispatches. Out: dispatches in the queues of clusters, answers, dead letters.
Call `scheduler.Scheduler` and `returns.Returns`, the workers.
"""
