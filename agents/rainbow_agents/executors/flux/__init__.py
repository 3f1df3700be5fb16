"""The executor `flux`: Flux's Python bindings, used by one thread of this process (see `session`).

In: jobs of the executor contract (`peer`). Out: what Flux says of them. Only `session` talks to Flux.
"""

from __future__ import annotations

import logging
import os
import threading

from rainbow_agents.executors.base import Context, Listener
from rainbow_agents.executors.flux.bindings import import_bindings
from rainbow_agents.executors.flux.link import Pipe
from rainbow_agents.executors.flux.peer import FluxPeer

log = logging.getLogger(__name__)


class FluxExecutor(FluxPeer):
    """Raises UnknownPlugin, with what to do, where the bindings cannot be imported. Options: see `peer`."""

    def __init__(self, context: Context, listener: Listener) -> None:
        import_bindings()
        from rainbow_agents.executors.flux.session import service

        self._main = service.main
        super().__init__("flux", context, listener)

    def start_session(self) -> Pipe:
        requests, to_session = os.pipe()
        from_session, messages = os.pipe()

        def run() -> None:
            try:
                self._main(requests, messages, self.context.owner, self.session_options)
            except Exception:  # the closed pipe says that the executor is down, and a new session is tried
                log.exception("the conversation with Flux broke", extra={"action": "flux"})
            finally:
                os.close(requests)
                os.close(messages)

        thread = threading.Thread(target=run, name="flux-reactor", daemon=True)
        thread.start()
        return Pipe(from_session, to_session, lambda: thread.join(5.0))


__all__ = ["FluxExecutor"]
