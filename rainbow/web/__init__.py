"""The web console and the HTTP API, one ASGI application.

In: HTTPS requests with a token. Out: pages for people, JSON and server-sent events for programs.
Call `app.make_app`; it uses `rainbow.client` alone, so a caller has the rights that the token has anywhere else.
"""
