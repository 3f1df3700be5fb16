"""Who may do what: tokens, signatures, scopes, OAuth 2 and enrollment.

In: claims, keys and messages. Out: principals, signed messages, or `rainbow.errors.Denied`.
Called by both sides; imports neither a broker nor a store.
"""
