"""The admission rule `script`: a program of the site decides. JSON on its standard input, its decision on its output.

It is run for each job, in no shell, with a minimal environment and ``/`` as its folder, and is asked
``{"version": 1, "cluster", "job": {id, attempt, user, name, priority, image, jobspec}, "demand": {nodes, cores, gpus},
"duration", "load": {queued, running}}``. It answers ``{"admit": true}``, or ``{"admit": false, "code": "policy" or
"busy", "detail": "why"}``.

Whatever goes wrong keeps jobs out: a script that fails, takes longer than `timeout` seconds, or says something else.
The job is then refused `busy`, so that it comes again once the script is mended, or with `on_error` (``busy`` or
``policy``). After a failure that took time the next jobs are refused at once, for `pause` seconds: a hanging script
must not hold deliveries.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from rainbow.errors import InvalidSettings
from rainbow.jobspec.request import Jobspec
from rainbow.models.job import Dispatch
from rainbow_agents.intake.admission.policies import Load, Refusal

log = logging.getLogger(__name__)

#: Bytes of its answer that are read.
_MOST = 65_536
_PATH = "/usr/local/bin:/usr/bin:/bin"


class _Failed(Exception):
    """The script did not decide, and why."""


class Script:
    """The decision of `command`, a program with its arguments, within `timeout` seconds; else no, by `on_error`."""

    def __init__(
        self,
        command: Sequence[str] | str,
        timeout: float = 2.0,
        on_error: str = "busy",
        pause: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.command = shlex.split(command) if isinstance(command, str) else [str(word) for word in command]
        if not self.command or shutil.which(self.command[0], path=_PATH) is None:
            shown = self.command[0] if self.command else ""
            raise InvalidSettings(f"admission script: there is no program {shown!r}: give its full path, executable")
        if not 0 < timeout <= 30:
            raise InvalidSettings("admission script: timeout is over 0 and at most 30 seconds")
        if on_error not in ("busy", "policy"):
            raise InvalidSettings("admission script: on_error is busy or policy")
        if pause < 0:
            raise InvalidSettings("admission script: pause is 0 or more seconds")
        self.timeout = timeout
        self.on_error = on_error
        self.pause = pause
        self._clock = clock
        self._broken_until = 0.0
        self._broken = ""

    def check(self, job: Dispatch, spec: Jobspec, load: Load) -> Refusal | None:
        begun = self._clock()
        if begun < self._broken_until:
            return self._no(self._broken)
        try:
            return self._read(self._run(question(job, spec, load)))
        except _Failed as exc:
            log.warning("admission script: %s", exc, extra={"action": "admission", "id": job.id})
            now = self._clock()
            if now - begun >= self.timeout / 2:
                self._broken_until, self._broken = now + self.pause, str(exc)
            return self._no(str(exc))

    def _no(self, why: str) -> Refusal:
        return Refusal("policy" if self.on_error == "policy" else "busy", f"the site's admission script {why}")

    def _run(self, asked: dict[str, Any]) -> bytes:
        end = time.monotonic() + self.timeout
        with tempfile.TemporaryFile() as question:
            question.write(json.dumps(asked).encode())
            question.seek(0)
            try:
                process = subprocess.Popen(  # noqa: S603 - the admin's own program, by the agent's settings
                    self.command,
                    stdin=question,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    env={"PATH": _PATH, "LANG": "C.UTF-8"},
                    start_new_session=True,
                )
            except OSError as exc:
                raise _Failed(f"cannot be run: {exc.strerror}") from None
        with process:
            assert process.stdout is not None
            try:
                said = _read_until(process.stdout.fileno(), end)
                process.wait(max(0.0, end - time.monotonic()))
            except (TimeoutError, subprocess.TimeoutExpired):
                raise _Failed(f"did not answer within {self.timeout:g} s") from None
            finally:
                # With all that it started: nothing of it may stay, or keep its output open.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
        if process.returncode != 0:
            raise _Failed(f"failed with exit code {process.returncode}")
        return said

    @staticmethod
    def _read(said: bytes) -> Refusal | None:
        try:
            answer = json.loads(said)
        except (ValueError, RecursionError):
            raise _Failed("did not answer with JSON") from None
        admit = answer.get("admit") if isinstance(answer, dict) else None
        if admit is True:
            return None
        if admit is not False:
            raise _Failed('did not answer with {"admit": true} or {"admit": false, …}')
        code, detail = answer.get("code", "policy"), answer.get("detail", "")
        if code not in ("policy", "busy") or not isinstance(detail, str):
            raise _Failed("gave no code policy or busy, with a text as detail")
        return Refusal(code, detail[:500] or "the site's admission script says no")


def _read_until(descriptor: int, end: float) -> bytes:
    """All that is written there. Raises TimeoutError at `end`, _Failed when it is too much."""
    said = b""
    while select.select([descriptor], [], [], max(0.0, end - time.monotonic()))[0]:
        block = os.read(descriptor, _MOST)
        if not block:
            return said
        said += block
        if len(said) > _MOST:
            raise _Failed(f"answered with over {_MOST} bytes")
    raise TimeoutError


def question(job: Dispatch, spec: Jobspec, load: Load) -> dict[str, Any]:
    """What the script is asked."""
    demand = spec.demand
    return {
        "version": 1,
        "cluster": job.cluster,
        "job": {
            "id": job.id,
            "attempt": job.attempt,
            "user": job.user,
            "name": job.name,
            "priority": job.priority,
            "image": job.image,
            "jobspec": job.jobspec,
        },
        "demand": {"nodes": demand.nodes, "cores": demand.cores, "gpus": demand.gpus},
        "duration": spec.duration,
        "load": {"queued": load.queued, "running": load.running},
    }
