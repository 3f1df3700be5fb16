"""The folded graph: shapes with counts instead of single vertices.

In: vertices and edges from a reader. Out: shapes, bundles and the identities of nodes.
Called by the readers and the matcher; imports neither.
"""
