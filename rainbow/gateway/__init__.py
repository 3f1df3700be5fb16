"""rainbow v1's gRPC service in front of today's rainbow, so that its clients go on unchanged.

In: v1's requests, with v1's tokens and secrets (which are opaque to its clients, and today's inside). Out: the same
requests that any client makes; each with the caller's own token, so it may here what it may elsewhere.
"""
