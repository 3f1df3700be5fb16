"""Bidding: asks clusters for offers before a job is placed.

In: jobs from the bidding queue. Out: jobs decided by the offers that came in time.
Call `bidder.Bidding`, a worker.
"""
