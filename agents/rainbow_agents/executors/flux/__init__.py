"""The executor `flux`: Flux's Python bindings, used by one thread of this process (see `session`)."""

from __future__ import annotations

import logging
import os
import threading

from rainbow.errors import UnknownPlugin
from rainbow_agents.executors.base import OUTPUT_TAIL, Context, Listener
from rainbow_agents.executors.flux.peer import FluxPeer, Pipe

log = logging.getLogger(__name__)


class FluxExecutor(FluxPeer):
    """Raises UnknownPlugin, with what to do, where the bindings cannot be imported. Options: see `peer`."""

    def __init__(self, context: Context, listener: Listener) -> None:
        try:
            from rainbow_agents.executors.flux import session
        except ImportError as exc:
            raise UnknownPlugin(
                f"Flux's Python bindings cannot be imported ({exc}): put Flux's folder on PYTHONPATH (`flux env` shows "
                "it), pip install flux-python of exactly Flux's version, or use executor flux-cli"
            ) from exc
        self._main = session.main
        super().__init__("flux", context, listener)

    def _open(self) -> Pipe:
        requests, to_session = os.pipe()
        from_session, words = os.pipe()

        def run() -> None:
            try:
                self._main(requests, words, self.context.owner, OUTPUT_TAIL, self.options["validate"])
            except Exception:  # told through the closed pipe: the executor is down, and a new thread is tried
                log.exception("the conversation with Flux broke", extra={"action": "flux"})
            finally:
                os.close(requests)
                os.close(words)

        thread = threading.Thread(target=run, name="flux-reactor", daemon=True)
        thread.start()
        return Pipe(from_session, to_session, lambda: thread.join(5.0))


__all__ = ["FluxExecutor"]
