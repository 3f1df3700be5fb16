"""The scheduler side of rainbow: workers that consume queues, and what they share.

In: messages from submitters and agents. Out: dispatches, records and answers.
Call `service.Service`, or the program `rainbow-scheduler`.
"""
