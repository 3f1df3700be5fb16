"""Matching: does a request fit a cluster, where, and if not, why not.

In: a request and a summary. Out: `answer.Answer` with counts, or the first unmet need.
Call `match.match` for one cluster and `index.ClusterIndex` for many.
"""
