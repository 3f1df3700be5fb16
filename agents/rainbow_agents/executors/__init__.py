"""Executors, the plugin kind `rainbow.executors`: what runs jobs on a cluster.

In: work. Out: events that a listener receives.
The contract is `base.Executor`; `testing` has its tests for plugins of others.
"""
