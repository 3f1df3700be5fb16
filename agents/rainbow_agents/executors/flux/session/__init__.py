"""The only code that talks to Flux: one thread, or one process, that owns a Flux handle and its reactor.

Requests come in as JSON lines over a file descriptor, outcomes and answers go out the same way (see `channel`).
`rainbow_agents.executors.flux.peer` is the other end of both descriptors and the only caller.

The package imports the standard library of Python 3.9, Flux's bindings and its own modules, by relative imports only.
It runs as a thread of the agent (executor `flux`), or as ``flux python -m session`` in its parent folder under Flux's
own Python (executor `flux-cli`). Everything is asynchronous: nothing waits for Flux except through the reactor.
"""
