"""The script of a batch job: what runs the tasks of a nextgen group inside the group's allocation.

POSIX shell around ``flux submit`` and ``flux batch``; it ends with the worst result of its tasks.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from rainbow.jobspec.durations import as_number
from rainbow.jobspec.flux.settings import Settings
from rainbow.jobspec.flux.shapes import Shape

HEAD = """\
#!/bin/sh
# Runs the tasks of one group. Local tasks run here, in order; the others are jobs of this instance.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
after() {
    for id in "$@"; do
        printf ' --dependency=afterok:%s' "$id"
    done
}
"""


class Script:
    """Collects the lines of one script. Steps are added in an order in which each may run."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._submitted: dict[str, str] = {}

    def local(self, name: str, line: str, settings: Settings, waits: Sequence[str]) -> None:
        """Run `line`, a shell command, in the script itself, once the jobs it waits for are done."""
        if ids := self._ids(waits):
            self._lines.append(f"flux job status {ids}")
        parts = [f"export {key}={shlex.quote(value)}" for key, value in (settings.environment or {}).items()]
        if settings.cwd is not None:
            parts.insert(0, f"cd {shlex.quote(settings.cwd)}")
        self._lines.append(f"# {_comment(name)}")
        self._lines += ["(", *parts, line, ")"] if parts else [line]

    def submit(
        self, name: str, command: Sequence[str], shape: Shape, settings: Settings, copies: int, waits: Sequence[str]
    ) -> None:
        """Submit `copies` jobs that run `command`."""
        words = ["flux", "submit", *_options(name, shape, settings)]
        if copies > 1:
            words.append(f"--cc=1-{copies}")
        self._capture(name, settings, words, waits, shlex.join(["--", *command]))

    def batch(self, name: str, script: str, shape: Shape, settings: Settings, waits: Sequence[str]) -> None:
        """Submit a batch job that runs `script` in an allocation of its own."""
        path = f'"$work/{len(self._submitted)}"'
        end = "END_OF_GROUP"
        while end in script:
            end += "_"
        self._lines += [f"cat >{path} <<'{end}'", script.removesuffix("\n"), end]
        self._capture(name, settings, ["flux", "batch", *_options(name, shape, settings)], waits, path)

    def text(self) -> str:
        lines = list(self._lines)
        if self._submitted:
            ids = " ".join(f"${variable}" for variable in self._submitted.values())
            lines.append(f"flux job status {ids}")
        return HEAD + "\n".join(lines) + "\n"

    def _capture(self, name: str, settings: Settings, words: list[str], waits: Sequence[str], rest: str) -> None:
        variable = f"job_{len(self._submitted) + 1}"
        prefix = (
            ["env", *(f"{key}={value}" for key, value in settings.environment.items())] if settings.environment else []
        )
        line = shlex.join([*prefix, *words])
        if ids := self._ids(waits):
            line += f" $(after {ids})"
        self._lines.append(f"# {_comment(name)}")
        self._lines.append(f"{variable}=$({line} {rest})")
        self._submitted[name] = variable

    def _ids(self, waits: Sequence[str]) -> str:
        """The variables with the ids of the jobs among `waits`; local tasks are done by then in any case."""
        return " ".join(f"${self._submitted[name]}" for name in waits if name in self._submitted)


def _options(name: str, shape: Shape, settings: Settings) -> list[str]:
    options = shape.flags()
    if settings.tasks is not None:
        options = [f"-n{settings.tasks}" if option.startswith("-n") else option for option in options]
    options.append(f"--job-name={name}")
    if settings.duration:
        options.append(f"-t{as_number(settings.duration)}s")
    if settings.cwd is not None:
        options.append(f"--cwd={settings.cwd}")
    return options


def _comment(text: str) -> str:
    return " ".join(text.split())
