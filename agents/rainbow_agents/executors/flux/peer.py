"""What the two Flux executors share: jobs made ready for Flux, and the conversation with `session`.

A jobspec gets here what Flux does not do by itself: an environment of its own (never the agent's), a working folder
that exists, bounded output, and the mark that says whose job it is.

Options: `output_limit` of each job in Flux's KVS (``100K``), `cwd` for jobs that name none (``/tmp``), `check_cwd`
(true: a folder that does not exist on this host is refused), `path`, `container` (the command a job with an `image` is
run by, with ``{image}`` in it, such as ``apptainer exec {image}``; without it such jobs are refused), `answer_within`
seconds, `validate` (false; true: Flux's own validator is asked about each job, also where its answer is known before:
see `validating`).
"""

from __future__ import annotations

import base64
import errno
import itertools
import json
import logging
import os
import queue
import shlex
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rainbow.errors import InvalidSettings
from rainbow.jobspec.request import Demand
from rainbow.models.job import RejectCode
from rainbow_agents.executors.base import (
    OUTPUT_TAIL,
    Busy,
    Changed,
    Context,
    Down,
    Ended,
    EndState,
    ExecutorDown,
    Found,
    Happening,
    Held,
    Listener,
    Mark,
    Outlook,
    Phase,
    Piece,
    Recovery,
    Refused,
    Started,
    Submitted,
    Undecided,
    Up,
    Usage,
    Waiting,
    Work,
)
from rainbow_agents.executors.environment import PATH, minimal
from rainbow_agents.executors.options import read_options

log = logging.getLogger(__name__)

#: How Flux's errors at submission are called here.
_CODES: Mapping[int, RejectCode] = {
    errno.EOVERFLOW: "no-fit",  # unsatisfiable
    errno.EPERM: "bad-spec",  # the validator, an unknown queue
    errno.EINVAL: "policy",  # limits, a disabled queue
}


class Pipe:
    """Two file descriptors to a running session, and how it ends."""

    def __init__(self, reader: int, writer: int, end: Callable[[], None]) -> None:
        self.reader = reader
        self.writer = writer
        self.end = end


class FluxPeer:
    """The executor, whichever way the session runs. `_open` of a subclass starts one."""

    def __init__(self, name: str, context: Context, listener: Listener, **defaults: Any) -> None:
        options = read_options(
            name,
            context.options,
            output_limit="100K",
            cwd="/tmp",  # noqa: S108 - where jobs run that name no folder
            check_cwd=True,
            path=PATH,
            container="",
            answer_within=15.0,
            validate=False,
            **defaults,
        )
        self.options = options
        if options["container"] and "{image}" not in options["container"]:
            raise InvalidSettings("option 'container' needs {image} in it, such as: apptainer exec {image}")
        self.context = context
        self._listener = listener
        self._lock = threading.Lock()
        self._asks = itertools.count(1)
        self._answers: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}
        self._pending: dict[Mark, None] = {}
        self._pipe: Pipe | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._listen, name=name, daemon=True)
        self._thread.start()

    def _open(self) -> Pipe:
        raise NotImplementedError

    # -- the contract ------------------------------------------------------------------------------------------

    def submit(self, works: Sequence[Work]) -> None:
        jobs: list[dict[str, Any]] = []
        marks: list[Mark] = []
        seen: dict[str, bool] = {}
        for work in works:
            problem = self._problem(work, seen)
            if problem is not None:
                self._listener(Refused(work.mark, "no-fit", problem))
                continue
            jobs.append({"mark": work.mark.as_dict(), "units": self._units(work)})
            marks.append(work.mark)
        if not jobs:
            return
        with self._lock:
            self._pending.update(dict.fromkeys(marks))
        if not self._send({"do": "submit", "jobs": jobs}):
            self._give_up("Flux is not there")

    def release(self, jobs: Sequence[Held]) -> None:
        if jobs:
            listed = [{"mark": h.mark.as_dict(), "urgency": max(1, min(31, h.priority))} for h in jobs]
            self._send({"do": "release", "jobs": listed})

    def cancel(self, jobs: Sequence[Held], reason: str) -> None:
        if jobs:
            self._send({"do": "cancel", "jobs": [{"mark": h.mark.as_dict()} for h in jobs], "reason": reason[:200]})

    def usage(self) -> Usage:
        got = self._ask({"do": "usage"})
        stopped = got.pop("stopped", [])
        return Usage(**got, notes=(("queues_stopped", ",".join(stopped)),))

    def outlook(self) -> Outlook:
        got = self._ask({"do": "outlook"})
        busy = tuple(Busy(Demand(*size), ends_at) for size, ends_at in got["busy"])
        waiting = tuple(Waiting(Demand(*size), duration, urgency) for size, duration, urgency in got["waiting"])
        return Outlook(Demand(*got["total"]), Demand(*got["free"]), busy, waiting)

    def output(self, job: Held, stdout: int, stderr: int, limit: int) -> Piece | None:
        if not job.handle:
            return None
        wanted = {"mark": job.mark.as_dict(), "names": job.handle.split(",")}
        got = self._ask({"do": "output", **wanted, "stdout": stdout, "stderr": stderr, "limit": limit})
        if not got:
            return None
        out, err = got["stdout"], got["stderr"]
        return Piece(
            base64.b64decode(out["data"]),
            base64.b64decode(err["data"]),
            out["from"],
            err["from"],
            out["size"],
            err["size"],
        )

    def recover(self, expected: Sequence[Held]) -> Recovery:
        listed = [{"mark": h.mark.as_dict(), "names": h.handle.split(",")} for h in expected if h.handle]
        got = self._ask({"do": "recover", "expected": listed})
        handles = {held.mark: held.handle for held in expected}
        return Recovery(got["incarnation"], tuple(f for job in got["jobs"] if (f := _found(job, handles)) is not None))

    def close(self) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        self._send({"do": "close"})
        self._thread.join(10.0)

    # -- making jobs ready ---------------------------------------------------------------------------------------

    def _problem(self, work: Work, seen: dict[str, bool]) -> str | None:
        """Why it cannot run here. `seen`: the folders looked at for this batch, and whether they are there."""
        if work.image and not self.options["container"]:
            return f"the job wants image {work.image!r}, and no container command is set here (option container)"
        if self.options["check_cwd"]:
            for unit in work.units:
                cwd = unit.document["attributes"]["system"].get("cwd")
                if cwd is None:
                    continue
                if cwd not in seen:
                    seen[cwd] = os.path.isdir(cwd)
                # Flux would run it in a temporary folder, without a word but on its standard error.
                if not seen[cwd]:
                    return f"its working folder {cwd!r} does not exist here"
        return None

    def _units(self, work: Work) -> list[dict[str, Any]]:
        places = {unit.name: index for index, unit in enumerate(work.units)}
        return [
            {"spec": self._spec(work, unit.document, index), "needs": [places[name] for name in unit.depends_on]}
            for index, unit in enumerate(work.units)
        ]

    def _spec(self, work: Work, document: Mapping[str, Any], index: int) -> dict[str, Any]:
        """A copy of a V1 document that says everything."""
        # Copied as deep as it is changed below.
        spec = dict(document)
        attributes = spec["attributes"] = dict(spec["attributes"])
        system = attributes["system"] = dict(attributes["system"])
        system["environment"] = {**minimal(work.mark, self.options["path"]), **(system.get("environment") or {})}
        system.setdefault("cwd", self.options["cwd"])
        system.setdefault("duration", 0)
        if work.name:
            system["job"] = {"name": work.name[:200], **(system.get("job") or {})}
        shell = system["shell"] = dict(system.get("shell") or {})
        options = shell["options"] = dict(shell.get("options") or {})
        output = options.get("output", {})
        if isinstance(output, Mapping):
            options["output"] = {"limit": self.options["output_limit"], **output}
        if work.image:
            words = [w.replace("{image}", work.image) for w in shlex.split(self.options["container"])]
            first, *others = spec["tasks"]
            spec["tasks"] = [{**first, "command": [*words, *first["command"]]}, *others]
        mark = {**work.mark.as_dict(), "owner": self.context.owner, "part": index, "parts": len(work.units)}
        attributes["user"] = {**(attributes.get("user") or {}), "rainbow": mark}
        return spec

    # -- talking ---------------------------------------------------------------------------------------------------

    def _send(self, request: dict[str, Any]) -> bool:
        """Whether the session will get it."""
        data = (json.dumps(request) + "\n").encode()
        with self._lock:
            pipe = self._pipe
            if pipe is None:
                return False
            try:
                while data:
                    data = data[os.write(pipe.writer, data) :]
            except OSError:
                return False
        return True

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        ask = next(self._asks)
        box: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._answers[ask] = box
        try:
            if not self._send({**request, "ask": ask}):
                raise ExecutorDown("Flux is not there")
            answer = box.get(timeout=self.options["answer_within"])
        except queue.Empty:
            raise ExecutorDown(f"Flux did not answer within {self.options['answer_within']:g} s") from None
        finally:
            self._answers.pop(ask, None)
        if "error" in answer:
            raise ExecutorDown(answer["error"])
        result: dict[str, Any] = answer["result"] or {}
        return result

    def _listen(self) -> None:
        """Keep a session running, and pass on what it says."""
        told = False
        while not self._closed.is_set():
            try:
                pipe = self._open()
            except OSError as exc:
                reason = f"the conversation with Flux cannot be started: {exc}"
            else:
                with self._lock:
                    self._pipe = pipe
                if self._closed.is_set():
                    self._send({"do": "close"})
                told = self._hear(pipe, told)
                reason = "the conversation with Flux ended"
                with self._lock:
                    self._pipe = None
                    os.close(pipe.writer)
                os.close(pipe.reader)
                pipe.end()
            if self._closed.is_set():
                return
            self._give_up(reason)
            if not told:
                told = True
                self._listener(Down(reason))
            self._closed.wait(1.0)

    def _hear(self, pipe: Pipe, told: bool) -> bool:
        """Until the session ends. Gives whether Down was the last word on it."""
        with os.fdopen(os.dup(pipe.reader), "rb") as words:
            for line in words:
                said = json.loads(line)
                happening = self._happening(said)
                if isinstance(happening, Up | Down):
                    told = isinstance(happening, Down)
                if isinstance(happening, Submitted | Refused | Undecided):
                    with self._lock:
                        self._pending.pop(happening.mark, None)
                if happening is not None:
                    self._listener(happening)
        return told

    def _give_up(self, reason: str) -> None:
        """Nothing will be heard of what is under way."""
        with self._lock:
            marks = list(self._pending)
            self._pending.clear()
        for mark in marks:
            self._listener(Undecided(mark, reason))
        for box in list(self._answers.values()):
            box.put({"error": reason})

    def _happening(self, said: dict[str, Any]) -> Happening | None:
        kind = said["say"]
        if kind == "answer":
            box = self._answers.get(said["ask"])
            if box is not None:
                box.put(said)
            return None
        if kind == "up":
            return Up(said["incarnation"])
        if kind == "down":
            return Down(said["reason"])
        if kind == "changed":
            return Changed(said["graph"])
        mark = _mark(said["mark"])
        if kind == "submitted":
            return Submitted(mark, ",".join(said["names"]), said["incarnation"])
        if kind == "refused":
            return Refused(mark, _CODES.get(said["errno"], "error"), str(said["detail"])[:1000])
        if kind == "undecided":
            return Undecided(mark, said["detail"])
        if kind == "started":
            return Started(mark, ",".join(said["names"]), said["at"])
        return _ended(mark, ",".join(p["name"] for p in said["parts"]), said["parts"])


def _mark(data: Mapping[str, Any]) -> Mark:
    return Mark(data["id"], data["attempt"], data["claim"])


def _ended(mark: Mark, handle: str, parts: Sequence[Mapping[str, Any]]) -> Ended:
    """How a job ended, from its parts: the first that did not succeed decides."""
    part = next((p for p in parts if _result(p)[0] != "completed"), parts[-1])
    state, returncode, code, detail = _result(part)
    return Ended(
        mark=mark,
        handle=handle,
        at=max(float(p["ended"] or time.time()) for p in parts),
        state=state,
        returncode=returncode,
        code=code,
        detail=detail,
        output=part["output"],
    )


def _result(part: Mapping[str, Any]) -> tuple[EndState, int, str | None, str | None]:
    """State, return code, code and detail of one Flux job: by its last fatal exception, then its wait status.

    A job that failed before or between may have no `finish` event at all, and so no status.
    """
    status, exception = part["status"], part["exception"]
    returncode = os.waitstatus_to_exitcode(status) if status is not None else None
    if exception is None:
        if returncode is None:
            return "failed", 1, "no-finish", "Flux recorded no end of its tasks"
        return ("completed" if returncode == 0 else "failed"), returncode, None, None
    kind, note = str(exception["type"]), exception["note"] or None
    if kind == "cancel":
        return "cancelled", -128 if returncode is None else returncode, kind, note
    return "failed", 1 if returncode is None else returncode, kind, note


def _found(job: Mapping[str, Any], handles: Mapping[Mark, str]) -> Found | None:
    mark = _mark(job["mark"])
    parts = job["parts"]
    handle = handles.get(mark) or ",".join(p["name"] for p in parts)
    started = min((p["started"] for p in parts if p["started"] is not None), default=None)
    live = [p for p in parts if p["ended"] is None]
    phase: Phase
    if not live:
        if not job["whole"]:
            return None
        return Found(mark, handle, "ended", started, _ended(mark, handle, parts[:OUTPUT_TAIL]))
    if started is not None:
        phase = "running"
    else:
        phase = "held" if any(p["urgency"] == 0 for p in live) else "queued"
    return Found(mark, handle, phase, started)
