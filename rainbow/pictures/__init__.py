"""Pictures of what the client returns: the folded tree of a cluster, and the timeline of jobs. No terminal, no server.

In: what `rainbow.client` gives. Out: lines of text for a terminal, and SVG for pages and files. One layout serves both.
"""
