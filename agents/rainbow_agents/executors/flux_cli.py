"""The executor `flux-cli`: for agents whose Python cannot import Flux's bindings.

Flux brings a Python of its own that can: ``flux python`` runs the same conversation (`flux.session`) as a program. One
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
from rainbow_agents.executors.base import OUTPUT_TAIL, Context, Listener
from rainbow_agents.executors.flux.peer import FluxPeer, Pipe

_SESSION = Path(__file__).parent / "flux" / "session.py"


class FluxCliExecutor(FluxPeer):
    """Raises InvalidSettings when there is no `flux` to call."""

    def __init__(self, context: Context, listener: Listener) -> None:
        self._command = shlex.split(str(context.options.get("command") or "flux"))
        if not self._command or shutil.which(self._command[0]) is None:
            raise InvalidSettings("there is no flux on the PATH: install Flux, or set the executor option `command`")
        super().__init__("flux-cli", context, listener, command="flux")

    def _open(self) -> Pipe:
        told = [self.context.owner, str(OUTPUT_TAIL), *(["validate"] if self.options["validate"] else [])]
        # Nothing of the agent's own virtual environment may change what Flux's Python imports.
        process = subprocess.Popen(  # noqa: S603
            [*self._command, "python", str(_SESSION), *told],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
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


__all__ = ["FluxCliExecutor"]
