"""The only code that talks to Flux: one thread (or process) that owns a handle and its reactor.

It imports nothing but the standard library (of Python 3.9), Flux's Python bindings and its neighbour `validating`, so
that it runs as a thread of the agent (executor `flux`) or as a program under Flux's own Python (``flux python
session.py``, executor `flux-cli`).
Either way it speaks JSON lines over two file descriptors: requests carry `do`, words from here `say`. Everything is
asynchronous and pipelined: nothing waits for an answer of Flux but through the reactor.

All jobs are followed through one stream, ``job-manager.events-journal`` (events: RFC 21; output: RFC 24). A probe with
a deadline notices a broker that is gone, shut down or frozen; the handle never recovers, so a new one is opened.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import json
import os
import select
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import flux.constants
import flux.job
from flux.core.inner import lib
from flux.resource import SchedResourceList

import flux

if TYPE_CHECKING or __package__:
    from rainbow_agents.executors.flux.validating import Validating
else:  # a program, which finds what is in its own folder
    from validating import Validating

#: Seconds between looks whether the broker still answers, and within which it has to.
PROBE_EVERY = 1.0
PROBE_WITHIN = 3.0
#: Seconds for one answer; a submission has longer, since the validator may have to be started first.
ANSWER_WITHIN = 10.0
SUBMIT_WITHIN = 30.0
RECONNECT_MOST = 2.0
#: Seconds that words of what became of jobs wait for more of them.
GATHER = 0.002
_TRIES = 30
#: Jobs of the queue that a forecast looks at.
OUTLOOK_JOBS = 5000
#: Shapes of jobs found feasible that are remembered.
_SHAPES = 10_000

#: What of the journal is of use. `submit` must be among them, or its end mark cannot be told from an empty reply.
FOLLOWED = ("submit", "start", "finish", "exception", "clean")
#: And what says whether a job is held still, for `recover`; while following, each would be one message more a job.
RECOVERED = (*FOLLOWED, "urgency")

Json = dict[str, Any]
Key = tuple[str, int, str]
#: Errors of a submission that say that Flux is away, not that the job is wrong.
AWAY = {errno.ENOSYS, errno.EPIPE, errno.ECONNRESET, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.EAGAIN, errno.ENOSPC}


class Closed(Exception):
    """The agent is gone, or wants this to end."""


class Part:
    """One Flux job of ours, as its events tell. A job of several tasks is several of them."""

    def __init__(self, number: int, mark: Json) -> None:
        self.number = number
        self.mark = {"id": mark["id"], "attempt": mark["attempt"], "claim": mark["claim"]}
        self.index: int = mark.get("part", 0)
        self.count: int = mark.get("parts", 1)
        self.urgency = 16
        self.started: float | None = None
        self.ended: float | None = None
        self.status: int | None = None
        self.exception: Json | None = None
        self.output: str | None = None
        self.told = False

    @property
    def key(self) -> Key:
        return (self.mark["id"], self.mark["attempt"], self.mark["claim"])

    @property
    def name(self) -> str:
        return str(flux.job.JobID(self.number).f58plain)

    def apply(self, event: Json) -> None:
        """Take over one event (RFC 21)."""
        name, context = event["name"], event.get("context") or {}
        if name in ("submit", "urgency"):
            self.urgency = context.get("urgency", self.urgency)
        elif name == "start":
            self.started = event["timestamp"]
        elif name == "finish":
            self.status = context.get("status")
        elif name == "exception" and context.get("severity") == 0:
            self.exception = {"type": context.get("type"), "note": context.get("note") or ""}
        elif name == "clean":
            self.ended = event["timestamp"]

    def facts(self) -> Json:
        return {
            "name": self.name,
            "urgency": self.urgency,
            "started": self.started,
            "ended": self.ended,
            "status": self.status,
            "exception": self.exception,
            "output": self.output,
        }


class Parts:
    """Our jobs by their number in Flux, and by mark."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.by_number: dict[int, Part] = {}
        self.by_key: dict[Key, dict[int, Part]] = {}

    def add(self, part: Part) -> Part:
        self.by_number[part.number] = part
        self.by_key.setdefault(part.key, {})[part.index] = part
        return part

    def take(self, reply: Json) -> Part | None:
        """Take over a reply of the journal; the job it is about when it is one of ours."""
        part = self.by_number.get(reply["id"])
        if part is None:
            mark = mark_in(reply.get("jobspec"), self.owner)
            if mark is None:
                return None
            part = self.add(Part(reply["id"], mark))
        for event in reply["events"]:
            part.apply(event)
        return part

    def of(self, mark: Json) -> list[Part]:
        """The parts of a job, in order."""
        found = self.by_key.get((mark["id"], mark["attempt"], mark["claim"]), {})
        return [found[index] for index in sorted(found)]

    def drop(self, mark: Json) -> None:
        for part in self.by_key.pop((mark["id"], mark["attempt"], mark["claim"]), {}).values():
            self.by_number.pop(part.number, None)


def mark_in(jobspec: Any, owner: str) -> Json | None:
    """The mark a job of ours carries, None for any other's."""
    if isinstance(jobspec, str):
        try:
            jobspec = json.loads(jobspec)
        except ValueError:
            return None
    try:
        mark = jobspec["attributes"]["user"]["rainbow"]
        if mark["owner"] == owner and mark["id"] and mark["claim"] and int(mark["attempt"]) >= 0:
            return dict(mark)
    except (KeyError, TypeError, ValueError):
        pass
    return None


def number_of(name: str) -> int:
    return int(flux.job.JobID(name))


class Session:
    """`reader` and `writer` are file descriptors; `owner` marks our jobs; of output the last `tail` bytes are told.
    With `validate` each job is left to Flux's validator, also where its answer is known (see `validating`)."""

    def __init__(self, reader: int, writer: int, owner: str, tail: int, validate: bool = False) -> None:
        self.reader = reader
        self.writer = writer
        self.owner = owner
        self.tail = tail
        self.validate = validate
        self.buffer = b""
        self.words: list[str] = []
        self.handle: Any = None
        self.incarnation = ""
        self.reset()

    def reset(self) -> None:
        self.parts = Parts(self.owner)
        self.ready = False
        self.submitting: dict[Key, Json] = {}
        self.asked: dict[int, bool] = {}
        self.queues: Json = {}
        self.validating: Validating | None = None
        self.looking = False
        self.gathering = False
        self.feasibility = True
        self.feasible: dict[str, bool] = {}
        self.resources_known = False
        self.probed: float | None = None
        self.why: str | None = None
        self.closed = False
        self.keep: list[Any] = []
        self.timers: dict[int, Any] = {}

    # -- words --------------------------------------------------------------------------------------------------

    def say(self, what: str, **fields: Any) -> None:
        """At once, after what was told before."""
        self.words.append(json.dumps(dict(fields, say=what)))
        self.flush()

    def tell(self, what: str, **fields: Any) -> None:
        """What became of a job, together with what becomes of others in the next moment: each word wakes the agent."""
        self.words.append(json.dumps(dict(fields, say=what)))
        if not self.gathering:
            self.gathering = True
            self.later(GATHER, self.gathered)

    def gathered(self) -> None:
        self.gathering = False
        try:
            self.flush()
        except Closed:
            self.close()

    def flush(self) -> None:
        data = "".join(word + "\n" for word in self.words).encode()
        self.words.clear()
        while data:
            try:
                sent = os.write(self.writer, data)
            except BlockingIOError:
                select.select([], [self.writer], [])
                continue
            except OSError as exc:
                raise Closed from exc
            data = data[sent:]

    def hear(self) -> list[Json]:
        """Requests that have arrived. Raises Closed when there will be no more."""
        while True:
            try:
                block = os.read(self.reader, 1 << 20)
            except BlockingIOError:
                break
            if not block:
                raise Closed
            self.buffer += block
        *lines, self.buffer = self.buffer.split(b"\n")
        return [json.loads(line) for line in lines if line]

    # -- connecting, again and again ----------------------------------------------------------------------------

    def run(self) -> None:
        os.set_blocking(self.reader, False)
        told, delay = False, 0.1
        try:
            while True:
                try:
                    self.connect()
                    self.handle.reactor_run()
                    reason = self.why or "the connection to Flux broke"
                except OSError as exc:
                    reason = f"Flux does not answer: {exc}"
                if self.ready:
                    told, delay = False, 0.1
                closed = self.closed
                self.disconnect(reason)
                if closed:
                    return
                if not told:
                    self.say("down", reason=reason)
                    told = True
                self.idle(delay)
                delay = min(RECONNECT_MOST, delay * 2)
        except Closed:
            self.disconnect("closed", quiet=True)

    def connect(self) -> None:
        self.reset()
        handle = flux.Flux()
        # Asked with a deadline first: the plain calls below wait for ever for a broker that is frozen.
        handle.rpc("job-manager.stats-get", {}, nodeid=0).wait_for(PROBE_WITHIN)
        self.handle = handle
        uuid = handle.attr_get("broker.uuid")
        self.incarnation = uuid.decode() if isinstance(uuid, bytes) else str(uuid)
        self.validating = Validating(handle, wanted=not self.validate)
        self.configured(handle.conf_get() or {})
        streaming = flux.constants.FLUX_RPC_STREAMING
        journal = self.journal(FOLLOWED, self.on_journal)
        resources = handle.rpc("resource.journal", {}, nodeid=0, flags=streaming)
        resources.then(self.on_resources)
        config = handle.rpc("config.get", {}, flags=streaming)
        config.then(self.on_config)
        requests = handle.fd_watcher_create(self.reader, self.on_request, flux.constants.FLUX_POLLIN)
        probe = handle.timer_watcher_create(PROBE_EVERY, self.on_probe, PROBE_EVERY)
        self.keep = [requests, probe, journal, resources, config]
        requests.start()
        probe.start()

    def journal(self, events: tuple[str, ...], callback: Callable[..., None]) -> Any:
        """The stream of all jobs' events: those of active jobs first, a reply with id -1, then what happens."""
        payload = {"full": False, "allow": dict.fromkeys(events, 1)}
        streaming = flux.constants.FLUX_RPC_STREAMING
        future = self.handle.rpc("job-manager.events-journal", payload, nodeid=0, flags=streaming)
        future.then(callback)
        return future

    def leave(self, why: str) -> None:
        """End the reactor, to connect anew."""
        self.why = self.why or why
        self.handle.reactor_stop()

    def close(self) -> None:
        self.closed = True
        self.handle.reactor_stop()

    def disconnect(self, reason: str, quiet: bool = False) -> None:
        """What is under way has no outcome any more."""
        for watcher in self.keep[:2]:
            watcher.stop()
        if not quiet:
            for mark in self.submitting.values():
                self.say("undecided", mark=mark, detail=reason)
            for ask in self.asked:
                self.say("answer", ask=ask, error=reason)
            self.flush()
        self.words.clear()
        for future in self.keep[2:]:
            future.stop()
        self.reset()
        self.handle = None  # closed with the last reference to it

    def idle(self, seconds: float) -> None:
        """Between two connections everything is answered with no."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self.reader], [], [], left)[0]:
                for request in self.hear():
                    self.decline(request, "Flux is not there")

    def decline(self, request: Json, reason: str) -> None:
        if request["do"] == "close":
            raise Closed
        for job in request["jobs"] if request["do"] == "submit" else ():
            self.say("undecided", mark=job["mark"], detail=reason)
        if "ask" in request:
            self.say("answer", ask=request["ask"], error=reason)

    # -- watchers: nothing may be raised out of them, the reactor would end without a word ---------

    def on_request(self, *_args: Any) -> None:
        try:
            for request in self.hear():
                if self.ready and request["do"] != "close":
                    getattr(self, "do_" + request["do"])(request)
                else:
                    self.decline(request, "Flux is not there yet")
        except Closed:
            self.close()

    def on_probe(self, *_args: Any) -> None:
        now = time.monotonic()
        if self.probed is None:
            self.probed = now
            self.handle.rpc("job-manager.stats-get", {}, nodeid=0).then(self.on_probed)
        elif now - self.probed > PROBE_WITHIN:
            self.leave("Flux does not answer any more")

    def on_probed(self, future: Any) -> None:
        try:
            future.get()
            self.probed = None
        except OSError as exc:
            self.leave(f"Flux is gone: {exc}")

    def on_journal(self, future: Any) -> None:
        try:
            reply = future.get()
            future.reset()
            self.read_journal(reply)
        except OSError as exc:
            self.leave(f"Flux's journal ended: {exc}")
        except Closed:
            self.close()

    def read_journal(self, reply: Json) -> None:
        if reply["id"] == -1:
            self.ready = True
            self.say("up", incarnation=self.incarnation)
            return
        part = self.parts.take(reply)
        if part is None or not self.ready:
            return
        for event in reply["events"]:
            if event["name"] == "start":
                self.started(part)
            elif event["name"] == "clean":
                self.fetch_output(part, lambda: self.ended(part))

    def on_resources(self, future: Any) -> None:
        try:
            reply = future.get()
            future.reset()
        except OSError:
            return  # a Flux without that stream: changes are seen at the next report
        events = reply.get("events") or ()
        if not events:  # the end mark of what was before
            self.resources_known = True
        elif self.resources_known:
            self.feasible.clear()
            try:
                self.say("changed", graph=any(event["name"].startswith("resource-") for event in events))
            except Closed:
                self.close()

    def on_config(self, future: Any) -> None:
        """The configuration, and then each that takes its place."""
        try:
            config = future.get()
            future.reset()
        except OSError:
            return  # a Flux that tells it once only (see `validating`)
        self.configured(config or {})

    def configured(self, config: Json) -> None:
        self.queues = config.get("queues") or {}
        if self.validating is not None:
            self.validating.configured(config)

    # -- a job's end --------------------------------------------------------------------------------------------

    def started(self, part: Part) -> None:
        bundle = self.parts.of(part.mark)
        if not any(other.told for other in bundle):
            part.told = True
            self.tell("started", mark=part.mark, names=[p.name for p in bundle], at=part.started)

    def ended(self, part: Part) -> None:
        """Tell the end of a job once all its parts are over. Of one whose parts are not all known `recover` tells."""
        bundle = self.parts.of(part.mark)
        if len(bundle) == part.count and all(p.ended is not None for p in bundle):
            self.tell("ended", mark=part.mark, parts=[p.facts() for p in bundle])
            self.parts.drop(part.mark)

    def fetch_output(self, part: Part, then: Callable[[], None]) -> None:
        """Ask for the output of a part that has started, and go on however that ends."""
        if part.started is None:
            then()
            return

        def arrived(future: Any) -> None:
            try:
                part.output = output_tail(future.get()["guest.output"], self.tail)
            except (OSError, KeyError, TypeError, ValueError):
                part.output = None  # none, or redirected to a file
            try:
                then()
            except Closed:
                self.close()

        payload = {"id": part.number, "keys": ["guest.output"], "flags": 0}
        self.handle.rpc("job-info.lookup", payload).then(arrived, timeout=ANSWER_WITHIN)

    # -- submitting ---------------------------------------------------------------------------------------------

    def do_submit(self, request: Json) -> None:
        for job in request["jobs"]:
            key = (job["mark"]["id"], job["mark"]["attempt"], job["mark"]["claim"])
            self.submitting[key] = job["mark"]
            self.check(job, 0, [])

    def check(self, job: Json, index: int, numbers: list[int]) -> None:
        """Could this part ever run? Asked of the scheduler where it answers that."""
        spec = self.with_queue(job["units"][index]["spec"])
        # The answer hangs on the resources asked for and the constraints alone, and most jobs are like others.
        shape = json.dumps([spec["resources"], spec["attributes"]["system"].get("constraints")], sort_keys=True)
        if not self.feasibility or shape in self.feasible:
            self.submit(job, index, numbers)
            return

        def answered(future: Any) -> None:
            try:
                future.get()
            except OSError as exc:
                if exc.errno == errno.ENOSYS:
                    self.feasibility = False
                else:
                    self.failed(job, numbers, exc, future)
                    return
            if len(self.feasible) < _SHAPES:
                self.feasible[shape] = True
            self.submit(job, index, numbers)

        self.handle.rpc("feasibility.check", {"jobspec": spec}).then(answered, timeout=SUBMIT_WITHIN)

    def with_queue(self, spec: Json) -> Json:
        """The jobspec with what its queue requires of nodes, which the check does not look up by itself."""
        system = spec["attributes"]["system"]
        requires = (self.queues.get(system.get("queue")) or {}).get("requires")
        if not requires:
            return spec
        wanted = {"properties": requires}
        both = {"and": [system["constraints"], wanted]} if system.get("constraints") else wanted
        return dict(spec, attributes=dict(spec["attributes"], system=dict(system, constraints=both)))

    def submit(self, job: Json, index: int, numbers: list[int]) -> None:
        """Submit one part, held (urgency 0); the next one when its number is known, since it may wait for it."""
        unit = job["units"][index]
        spec = unit["spec"]
        if unit["needs"]:
            waits = [{"scheme": "afterok", "value": name_of(numbers[n])} for n in unit["needs"]]
            system = spec["attributes"]["system"]
            system["dependencies"] = list(system.get("dependencies") or ()) + waits
        known = self.validating is not None and self.validating.passes(spec)
        future = flux.job.submit_async(self.handle, json.dumps(spec), urgency=0, novalidate=known)

        def answered(future: Any) -> None:
            try:
                number = int(flux.job.submit_get_id(future))
            except OSError as exc:
                self.failed(job, numbers, exc, future)
                return
            if not known:
                self.look_at_validator()
            mark = dict(job["mark"], part=index, parts=len(job["units"]))
            if number not in self.parts.by_number:
                part = self.parts.add(Part(number, mark))
                part.urgency = 0
            numbers.append(number)
            if index + 1 < len(job["units"]):
                self.check(job, index + 1, numbers)
                return
            self.outcome(job, "submitted", names=[name_of(n) for n in numbers], incarnation=self.incarnation)

        future.then(answered, timeout=SUBMIT_WITHIN)

    def look_at_validator(self) -> None:
        """A job was just validated, so the process that did it is there to be looked at."""
        if self.validating is None or self.looking or not self.validating.unseen:
            return
        validating, self.looking = self.validating, True

        def told(future: Any) -> None:
            self.looking = False
            with contextlib.suppress(OSError, KeyError, TypeError):
                validating.look(future.get())

        # Of this broker's own: another's processes are on another host.
        rank = self.handle.get_rank()
        self.handle.rpc("job-ingest.stats-get", {}, nodeid=rank).then(told, timeout=ANSWER_WITHIN)

    def failed(self, job: Json, numbers: list[int], exc: OSError, future: Any) -> None:
        for number in numbers:  # parts that went in before
            flux.job.cancel_async(self.handle, number, "another part was refused").then(ignore)
        text = error_text(future) or exc.strerror or str(exc)
        if exc.errno in AWAY:
            self.outcome(job, "undecided", detail=text)
        else:
            self.outcome(job, "refused", errno=exc.errno, detail=text)

    def outcome(self, job: Json, what: str, **fields: Any) -> None:
        key = (job["mark"]["id"], job["mark"]["attempt"], job["mark"]["claim"])
        if self.submitting.pop(key, None) is None:
            return
        self.tell(what, mark=job["mark"], **fields)

    # -- releasing, cancelling ----------------------------------------------------------------------------------

    def do_release(self, request: Json) -> None:
        # Nobody waits for the answer: whether it came through, `recover` shows. So without the objects that wait.
        handle, no_response = self.handle.handle, flux.constants.FLUX_RPC_NORESPONSE
        for job in request["jobs"]:
            for part in self.parts.of(job["mark"]):
                if part.ended is None:
                    payload = b'{"id":%d,"urgency":%d}' % (part.number, job["urgency"])
                    lib.flux_future_destroy(lib.flux_rpc(handle, b"job-manager.urgency", payload, 0, no_response))

    def do_cancel(self, request: Json) -> None:
        for job in request["jobs"]:
            for part in self.parts.of(job["mark"]):
                if part.ended is None:
                    flux.job.cancel_async(self.handle, part.number, request["reason"]).then(ignore)

    # -- questions ----------------------------------------------------------------------------------------------

    def answer(self, ask: int, **fields: Any) -> None:
        if self.asked.pop(ask, None) is None:
            return
        try:
            self.say("answer", ask=ask, **fields)
        except Closed:
            self.close()

    def gather(self, ask: int, rpcs: dict[str, Any], then: Callable[[Json], None]) -> None:
        """Wait for all answers; an error answers the question with it."""
        got: Json = {}

        def arrived(future: Any, name: str) -> None:
            try:
                got[name] = future.get()
            except OSError as exc:
                self.answer(ask, error=f"Flux does not answer ({name}): {exc}")
                return
            if len(got) == len(rpcs):
                then(got)

        for name, future in rpcs.items():
            future.then(arrived, name, timeout=ANSWER_WITHIN)

    def do_usage(self, request: Json) -> None:
        ask = request["ask"]
        self.asked[ask] = True
        rpcs = {
            "resources": self.handle.rpc("resource.sched-status", {}, nodeid=0),
            "jobs": self.handle.rpc("job-list.job-stats", {}),
        }
        for name in self.queues or ("",):
            payload = {"name": name} if name else {}
            rpcs["queue " + name] = self.handle.rpc("job-manager.queue-status", payload, nodeid=0)
        self.gather(ask, rpcs, lambda got: self.answer(ask, result=usage_of(got)))

    def do_outlook(self, request: Json) -> None:
        """The queue as it is now, of all users: resources, running jobs, and those that wait, best first."""
        ask = request["ask"]
        self.asked[ask] = True
        got: Json = {}
        jobs: dict[int, Json] = {}  # one may be listed twice, as it was and as it is

        def done(name: str, value: Any) -> None:
            got[name] = value
            if "resources" in got and "listed" in got:
                self.answer(ask, result=outlook_of(got["resources"], list(jobs.values())))

        def resources(future: Any) -> None:
            try:
                done("resources", future.get())
            except OSError as exc:
                self.answer(ask, error=f"Flux does not answer (resource): {exc}")

        def listed(future: Any) -> None:
            try:
                reply = future.get()
            except OSError as exc:
                if exc.errno == errno.ENODATA:  # the end of the stream
                    done("listed", True)
                else:
                    self.answer(ask, error=f"Flux does not answer (job-list): {exc}")
                return
            jobs.update((job["id"], job) for job in reply["jobs"])
            if reply.get("version", 0) == 0:
                done("listed", True)
            else:
                future.reset()

        payload = {
            "max_entries": OUTLOOK_JOBS,
            "attrs": ["state", "urgency", "priority", "ncores", "nnodes", "duration", "expiration"],
            "since": 0.0,
            "constraint": {"states": ["pending", "running"]},
        }
        streaming = flux.constants.FLUX_RPC_STREAMING
        self.handle.rpc("resource.sched-status", {}, nodeid=0).then(resources, timeout=ANSWER_WITHIN)
        self.handle.rpc("job-list.list", payload, flags=streaming).then(listed, timeout=ANSWER_WITHIN)

    def do_output(self, request: Json) -> None:
        """Pieces of both streams of a job, from all its parts one after the other."""
        ask, names = request["ask"], request["names"]
        self.asked[ask] = True
        blocks: list[tuple[bytes, bytes]] = []

        def fetch(key: str, then: Callable[[Any], None]) -> None:
            def arrived(future: Any) -> None:
                try:
                    then(future.get()[key])
                except OSError as exc:
                    if exc.errno == errno.ENOENT:
                        then(None)
                    else:
                        self.answer(ask, error=f"Flux does not answer (job-info): {exc}")

            payload = {"id": number_of(names[len(blocks)]), "keys": [key], "flags": 0}
            self.handle.rpc("job-info.lookup", payload).then(arrived, timeout=ANSWER_WITHIN)

        def whose(jobspec: Any) -> None:
            mark = mark_in(jobspec, self.owner)
            if mark is None or any(mark[k] != request["mark"][k] for k in ("id", "attempt", "claim")):
                self.answer(ask, result=None)  # purged, or somebody else's job, with an id that was given out again
                return
            fetch("guest.output", written)

        def written(eventlog: Any) -> None:
            blocks.append(output_streams(eventlog or ""))
            if len(blocks) < len(names):
                fetch("jobspec", whose)
                return
            result = {}
            for index, name in enumerate(("stdout", "stderr")):
                data = b"".join(block[index] for block in blocks)
                start = request[name]
                begin = max(0, len(data) + start) if start < 0 else min(start, len(data))
                piece = base64.b64encode(data[begin : begin + request["limit"]]).decode()
                result[name] = {"from": begin, "size": len(data), "data": piece}
            self.answer(ask, result=result)

        fetch("jobspec", whose)

    def do_recover(self, request: Json) -> None:
        """All active jobs of ours, from the journal as it is now; and how the expected ones among the rest ended."""
        ask = request["ask"]
        self.asked[ask] = True
        active = Parts(self.owner)

        def arrived(future: Any) -> None:
            try:
                reply = future.get()
            except OSError as exc:
                self.answer(ask, error=f"Flux's journal ended: {exc}")
                return
            if reply["id"] != -1:
                future.reset()
                active.take(reply)
                return
            future.stop()
            no_response = flux.constants.FLUX_RPC_NORESPONSE
            tag = {"matchtag": future.pimpl.get_matchtag()}
            self.handle.rpc("job-manager.events-journal-cancel", tag, nodeid=0, flags=no_response)
            self.look_up(ask, active, request["expected"])

        self.keep.append(self.journal(RECOVERED, arrived))
        del self.keep[5:-8]  # a stream must outlive its cancelling; the last few are kept

    def look_up(self, ask: int, active: Parts, expected: list[Json]) -> None:
        """Ask for what is not active any more, and check by its mark that it is ours indeed."""
        ended = Parts(self.owner)
        wanted = []
        for job in expected:
            known = {p.number for p in active.of(job["mark"])}
            wanted += [(job, name) for name in job["names"] if number_of(name) not in known]
        left = len(wanted)
        if not left:
            self.tell_recovery(ask, active, ended, expected)
            return

        def done() -> None:
            nonlocal left
            left -= 1
            if not left:
                self.tell_recovery(ask, active, ended, expected)

        def ask_for(job: Json, name: str, tries: int) -> None:
            payload = {"id": number_of(name), "keys": ["jobspec", "eventlog"], "flags": 0}
            self.handle.rpc("job-info.lookup", payload).then(arrived, job, name, tries, timeout=ANSWER_WITHIN)

        def arrived(future: Any, job: Json, name: str, tries: int) -> None:
            try:
                found = future.get()
            except OSError as exc:
                if exc.errno == errno.ENOENT:
                    done()  # purged, or never there
                else:
                    self.answer(ask, error=f"Flux does not answer (job-info): {exc}")
                return
            mark = mark_in(found.get("jobspec"), self.owner)
            if mark is None or any(mark[k] != job["mark"][k] for k in ("id", "attempt", "claim")):
                done()  # somebody else's job, with an id that was given out again
                return
            part = Part(number_of(name), mark)
            for line in found["eventlog"].splitlines():
                part.apply(json.loads(line))
            if part.ended is None and tries < _TRIES:
                # Not active any more, but its last events are written to the KVS a moment later.
                self.later(0.1, lambda: ask_for(job, name, tries + 1))
                return
            self.fetch_output(ended.add(part), done)

        for job, name in wanted:
            ask_for(job, name, 0)

    def later(self, seconds: float, then: Callable[[], None]) -> None:
        timers = self.timers

        def due(_handle: Any, watcher: Any, *_args: Any) -> None:
            timers.pop(id(watcher), None)
            then()

        watcher = self.handle.timer_watcher_create(seconds, due)
        timers[id(watcher)] = watcher
        watcher.start()

    def tell_recovery(self, ask: int, active: Parts, ended: Parts, expected: list[Json]) -> None:
        jobs = []
        names = {(j["mark"]["id"], j["mark"]["attempt"], j["mark"]["claim"]): j["names"] for j in expected}
        for key in {**active.by_key, **ended.by_key}:
            mark = {"id": key[0], "attempt": key[1], "claim": key[2]}
            parts = sorted(active.of(mark) + ended.of(mark), key=lambda p: p.index)
            wanted = names.get(key)
            # Only some parts found, and the others are not to be had: it was never complete, or they were purged.
            whole = len(parts) == (len(wanted) if wanted else parts[0].count)
            jobs.append({"mark": mark, "whole": whole, "parts": [p.facts() for p in parts]})
        self.answer(ask, result={"incarnation": self.incarnation, "jobs": jobs})


def name_of(number: int) -> str:
    return str(flux.job.JobID(number).f58plain)


def ignore(future: Any) -> None:
    """For calls whose failure shows elsewhere: the job ended meanwhile, or Flux is gone."""
    with contextlib.suppress(OSError):
        future.get()


def error_text(future: Any) -> str | None:
    try:
        text = future.error_string()
    except (OSError, AttributeError):
        return None
    return str(text) if text else None


def usage_of(got: Json) -> Json:
    """Numbers from the scheduler's resource sets and the counts of jobs by state."""
    resources = SchedResourceList(got["resources"])
    free = resources.free
    whole = set(resources.up.ranks) - set(resources.allocated.ranks)
    states = got["jobs"]["job_states"]
    stopped = sorted(
        name[len("queue ") :] or "default"
        for name, status in got.items()
        if name.startswith("queue ") and not (status.get("start") and status.get("enable"))
    )
    return {
        "nodes_free": len(whole),
        "cores_free": free.ncores,
        "gpus_free": free.ngpus,
        "nodes_up": resources.up.nnodes,
        "jobs_pending": states["depend"] + states["priority"] + states["sched"],
        "jobs_running": states["run"] + states["cleanup"],
        "stopped": stopped,
    }


def outlook_of(status: Json, jobs: list[Json]) -> Json:
    """Sizes as ``[nodes, cores, gpus]``. Flux does not list GPUs of a job: they are taken to be held in proportion to
    cores. Held jobs (urgency 0) stand in nobody's way."""
    resources = SchedResourceList(status)
    up, free, allocated = resources.up, resources.free, resources.allocated
    whole = set(up.ranks) - set(allocated.ranks)
    gpus_each = allocated.ngpus / allocated.ncores if allocated.ncores else 0.0
    busy, waiting = [], []
    for job in jobs:
        nodes, cores = job.get("nnodes") or 0, job.get("ncores") or 0
        if job["state"] >= flux.constants.FLUX_JOB_STATE_RUN:
            busy.append([[nodes, cores, round(gpus_each * cores)], job.get("expiration") or None])
        elif job.get("urgency", 16) > 0:
            waiting.append([[nodes, cores or nodes, 0], job.get("duration") or None, job.get("urgency", 16)])
    return {
        "total": [up.nnodes, up.ncores, up.ngpus],
        "free": [len(whole), free.ncores, free.ngpus],
        "busy": busy,
        "waiting": waiting,
    }


def output_streams(eventlog: str) -> tuple[bytes, bytes]:
    """A job's standard output and error (RFC 24)."""
    streams: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
    for line in eventlog.splitlines():
        event = json.loads(line)
        context = event.get("context") or {}
        if event["name"] != "data" or context.get("data") is None:
            continue
        data = context["data"]
        block = base64.b64decode(data) if context.get("encoding") == "base64" else data.encode()
        streams.setdefault(context.get("stream", "stdout"), []).append(block)
    return b"".join(streams["stdout"]), b"".join(streams["stderr"])


def output_tail(eventlog: str, limit: int) -> str | None:
    """The last `limit` bytes of a job's output (RFC 24), standard output and error as they came."""
    blocks: list[bytes] = []
    size = 0
    for line in reversed(eventlog.splitlines()):
        event = json.loads(line)
        if event["name"] != "data":
            continue
        context = event["context"]
        data = context.get("data")
        if data is None:
            continue
        block = base64.b64decode(data) if context.get("encoding") == "base64" else data.encode()
        blocks.append(block)
        size += len(block)
        if size >= limit:
            break
    return b"".join(reversed(blocks))[-limit:].decode("utf-8", "replace") or None


def main(reader: int, writer: int, owner: str, tail: int, validate: bool = False) -> None:
    """Speak for Flux until the other side is gone."""
    Session(reader, writer, owner, tail, validate).run()


if __name__ == "__main__":
    main(0, 1, sys.argv[1], int(sys.argv[2]), sys.argv[3:] == ["validate"])
