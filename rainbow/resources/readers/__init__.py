"""Readers: text of a resource graph in, a summary out.

In: JGF, Flux R and subsystem documents. Out: `summary.Summary`, small enough for Redis.
Call `reader.read_graph` and `subsystem_reader.read_subsystem`.
"""
