"""Compact sets of names and ranks: hostlists (RFC 29) and idsets (RFC 22).

In: text such as `node[1-9]` or `0-3,7`. Out: sets that count and test membership without being expanded.
May be called by everything: this room imports only `rainbow.errors`.
"""
