"""The executor `flux-cli`: for agents whose Python cannot import Flux's bindings.

Flux brings a Python of its own that can: ``flux python`` runs the same session (`flux.session`) as a program. One
process for all jobs, where a command for each would cost half a second of a core a job (measured).

Options: those of `flux`, and `command`, how to call Flux (``flux``).
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

from rainbow.errors import InvalidSettings
from rainbow_agents.executors.base import Context, Executor, Listener
from rainbow_agents.executors.flux import FluxExecutor
from rainbow_agents.executors.flux.bindings import usable
from rainbow_agents.executors.flux.link import Pipe
from rainbow_agents.executors.flux.peer import FluxPeer

_FOLDER = Path(__file__).parent / "flux"


class FluxCliExecutor(FluxPeer):
    """Raises InvalidSettings when there is no `flux` to call."""

    def __init__(self, context: Context, listener: Listener) -> None:
        self._command = shlex.split(str(context.options.get("command") or "flux"))
        if not self._command or shutil.which(self._command[0]) is None:
            raise InvalidSettings(
                "there is no flux on the PATH: install Flux, set the executor option `command`, or run jobs without "
                "Flux (`--executor local`)"
            )
        super().__init__("flux-cli", context, listener, command="flux")

    def start_session(self) -> Pipe:
        # Nothing of the agent's own virtual environment may change what Flux's Python imports.
        process = subprocess.Popen(  # noqa: S603
            [*self._command, "python", "-m", "session", self.context.owner, self.session_options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=_FOLDER,
            env={k: v for k, v in os.environ.items() if not k.startswith(("RAINBOW_", "VIRTUAL_ENV"))},
        )
        assert process.stdin is not None
        assert process.stdout is not None
        reader, writer = os.dup(process.stdout.fileno()), os.dup(process.stdin.fileno())
        process.stdin.close()
        process.stdout.close()

        def end() -> None:
            try:
                process.wait(5.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

        return Pipe(reader, writer, end)


def auto(context: Context, listener: Listener) -> Executor:
    """The executor `auto`: `flux` where this Python can import Flux's bindings, else `flux-cli`."""
    return FluxExecutor(context, listener) if usable() else FluxCliExecutor(context, listener)


__all__ = ["FluxCliExecutor", "auto"]
