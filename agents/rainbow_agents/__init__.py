"""The agent beside Flux: takes dispatches, runs them, and reports the results.

In: the queue of one cluster. Out: jobs in an executor, and events for the scheduler.
Call `agent.Agent`, or the program `rainbow-agent`.
"""
