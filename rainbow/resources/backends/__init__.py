"""Graph backends, the plugin kind `rainbow.graphs`: folded (the default) and vertex (one by one).

In: summaries and requests. Out: the clusters that match.
The contract is `base.GraphBackend`.
"""
