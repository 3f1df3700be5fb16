"""What a scheduler knows of its clusters.

In: changes from the store. Out: `cache.ClusterCache` for decisions.
Call `sync.CacheSync` to refresh it; `circuit_breaker` and `bid_accuracy` keep what experience adds.
"""
