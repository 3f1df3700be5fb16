"""What the two Flux executors share: the executor contract, over a conversation with a session.

Options: `output_limit` of each job in Flux's KVS (``100K``), `cwd` for jobs that name none (``/tmp``), `check_cwd`
(true: a folder that does not exist on this host is refused), `path`, `container` (the command a job with an `image` is
run by, with ``{image}`` in it, such as ``apptainer exec {image}``; without it such jobs are refused), `answer_within`
seconds, `validate` (false; true: Flux's own validator is asked about each job, also where its answer is known before:
see `session.validating`), `uri` of the instance (``file:PATH`` of a file that holds it, or what ``flux uri`` resolves;
else FLUX_URI, else the system's; resolved again for each connection), `down_after` seconds without an answer (10).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

from rainbow.jobspec.request import Demand
from rainbow_agents.executors.base import (
    OUTPUT_TAIL,
    Busy,
    Context,
    Held,
    Listener,
    Outlook,
    Piece,
    Recovery,
    Refused,
    SubmissionKey,
    Usage,
    Waiting,
    Work,
)
from rainbow_agents.executors.environment import PATH
from rainbow_agents.executors.flux.link import Pipe, SessionLink
from rainbow_agents.executors.flux.preparation import Preparer
from rainbow_agents.executors.flux.results import recovery_of
from rainbow_agents.executors.options import read_options

#: Seconds to wait for output, which may be large.
_OUTPUT_WITHIN = 70.0


class FluxPeer:
    """The executor, whichever way the session runs: `start_session` of a subclass starts one."""

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
            uri="",
            down_after=10.0,
            **defaults,
        )
        self.options = options
        self.context = context
        self._listener = listener
        self._preparer = Preparer(context, options)
        self._link = SessionLink(name, listener, self.start_session, self._found_flux, options["answer_within"])

    def start_session(self) -> Pipe:
        """Start a session. Raises OSError."""
        raise NotImplementedError

    @property
    def session_options(self) -> str:
        """The session's options, as JSON."""
        return json.dumps({"tail": OUTPUT_TAIL, **{k: self.options[k] for k in ("validate", "uri", "down_after")}})

    def _found_flux(self, folder: str | None) -> None:
        self._preparer.flux_folder = folder

    # -- the contract ------------------------------------------------------------------------------------------

    def submit(self, works: Sequence[Work]) -> None:
        jobs: dict[SubmissionKey, dict[str, Any]] = {}
        seen: dict[str, bool] = {}
        for work in works:
            problem = self._preparer.problem(work, seen)
            if problem is not None:
                self._listener(Refused(work.mark, "no-fit", problem))
            else:
                jobs[work.mark] = {"mark": work.mark.as_dict(), "units": self._preparer.units(work)}
        if jobs:
            self._link.submit(jobs)

    def release(self, jobs: Sequence[Held]) -> None:
        if jobs:
            listed = [{"mark": h.mark.as_dict(), "urgency": max(1, min(31, h.priority))} for h in jobs]
            self._link.send("release", jobs=listed)

    def cancel(self, jobs: Sequence[Held], reason: str) -> None:
        if jobs:
            self._link.send("cancel", jobs=[{"mark": h.mark.as_dict()} for h in jobs], reason=reason[:200])

    def usage(self) -> Usage:
        got = self._link.ask("usage")
        stopped, disabled, closed = (got.pop(name) for name in ("stopped", "disabled", "closed"))
        notes = (
            ("queues_stopped", ",".join(stopped)),
            ("queues_disabled", ",".join(disabled)),
            # Of the queue that jobs go to which name none.
            ("closed", closed),
        )
        return Usage(**got, notes=notes)

    def outlook(self) -> Outlook:
        got = self._link.ask("outlook")
        busy = tuple(Busy(Demand(*size), ends_at) for size, ends_at in got["busy"])
        waiting = tuple(Waiting(Demand(*size), duration, urgency) for size, duration, urgency in got["waiting"])
        return Outlook(
            Demand(*got["total"]),
            Demand(*got["free"]),
            busy,
            waiting,
            Demand(*got["up"]),
            got["closed"],
            got["default_queue"],
        )

    def output(self, job: Held, stdout: int, stderr: int, limit: int) -> Piece | None:
        if not job.handle:
            return None
        got = self._link.ask(
            "output",
            within=_OUTPUT_WITHIN,
            mark=job.mark.as_dict(),
            names=job.handle.split(","),
            stdout=stdout,
            stderr=stderr,
            limit=limit,
        )
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
            tuple((stream, size) for stream, size in got["order"]),
            tuple(got["notes"]),
        )

    def recover(self, expected: Sequence[Held]) -> Recovery:
        listed = [{"mark": h.mark.as_dict(), "names": h.handle.split(",")} for h in expected if h.handle]
        return recovery_of(self._link.ask("recover", expected=listed), {held.mark: held.handle for held in expected})

    def close(self) -> None:
        self._link.close()


__all__ = ["FluxPeer"]
