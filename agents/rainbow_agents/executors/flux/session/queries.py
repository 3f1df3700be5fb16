"""Answers questions about the instance: free resources, the queue as a forecast needs it, output of a job."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import flux.constants
from flux.resource import SchedResourceList

from .channel import Json
from .connection import Connection
from .jobs import key_of, mark_in, number_of
from .output import Output, read_output

#: Jobs of the queue that a forecast looks at.
OUTLOOK_JOBS = 5000
#: Seconds to fetch the whole output of a job, which may be large.
OUTPUT_WITHIN = 60.0
#: Bytes of output of ended jobs that are kept, so that a reader of pieces does not fetch it for each.
_KEPT_OUTPUT = 64 << 20
#: Prefix of the answers about queues; the name of the one queue of an instance without named ones is empty.
_QUEUE = "queue "


class Queries:
    """Each method answers one question; an error of Flux answers it, too."""

    def __init__(self, connection: Connection, owner: str) -> None:
        self._connection = connection
        self._owner = owner
        self._queues: Json = {}
        self._default_queue = ""
        self._kept: dict[tuple[str, ...], Output] = {}

    def configured(self, config: Json) -> None:
        self._queues = config.get("queues") or {}
        defaults = ((config.get("policy") or {}).get("jobspec") or {}).get("defaults") or {}
        self._default_queue = (defaults.get("system") or {}).get("queue") or ""

    # -- usage -------------------------------------------------------------------------------------------------------

    def usage(self, request: Json) -> None:
        got = _Gathered(
            self._connection,
            request["ask"],
            {"resources", "jobs", *self._queue_calls()},
            lambda answers: self._connection.answer(
                request["ask"],
                result=dict(usage_of(answers), closed=closed_queues(answers).get(self._default_queue, "")),
            ),
        )
        self._ask_resources(got)
        self._connection.rpc("job-list.job-stats", {}, got.arrived, "jobs")

    def _queue_calls(self) -> set[str]:
        return {_QUEUE + name for name in self._queues or ("",)}

    def _ask_resources(self, got: _Gathered) -> None:
        """Ask for the resources and the state of each queue."""
        self._connection.rpc("resource.sched-status", {}, got.arrived, "resources", nodeid=0)
        for call in self._queue_calls():
            name = call[len(_QUEUE) :]
            self._connection.rpc(
                "job-manager.queue-status", {"name": name} if name else {}, got.arrived, call, nodeid=0
            )

    # -- outlook -----------------------------------------------------------------------------------------------------

    def outlook(self, request: Json) -> None:
        """The queue as it is now, of all users: resources, running jobs, and jobs that wait, in their order."""
        jobs: dict[int, Json] = {}  # one may be listed twice, as it was and as it is

        def complete(answers: Json) -> None:
            result = outlook_of(answers["resources"], list(jobs.values()))
            result.update(closed=closed_queues(answers), default_queue=self._default_queue)
            self._connection.answer(request["ask"], result=result)

        got = _Gathered(self._connection, request["ask"], {"resources", "listed", *self._queue_calls()}, complete)

        def listed(future: Any) -> None:
            try:
                reply = future.get()
            except OSError as exc:
                if exc.errno == errno.ENODATA:  # the end of the stream
                    got.put("listed", True)
                else:
                    self._connection.answer(request["ask"], error=f"Flux does not answer (job-list): {exc}")
                return
            jobs.update((job["id"], job) for job in reply["jobs"])
            if reply.get("version", 0) == 0:
                got.put("listed", True)
            else:
                future.reset()

        payload = {
            "max_entries": OUTLOOK_JOBS,
            "attrs": ["state", "urgency", "priority", "ncores", "nnodes", "duration", "expiration"],
            "since": 0.0,
            # Jobs in DEPEND wait for something else than resources.
            "constraint": {"states": ["priority", "sched", "running"]},
        }
        self._ask_resources(got)
        self._connection.rpc("job-list.list", payload, listed, flags=flux.constants.FLUX_RPC_STREAMING)

    # -- output ------------------------------------------------------------------------------------------------------

    def output(self, request: Json) -> None:
        """A piece of both streams of a job, from all its parts one after the other."""
        names = tuple(request["names"])
        key = (request["mark"]["id"], request["mark"]["claim"], *names)
        kept = self._kept.get(key)
        if kept is not None:
            self._send_piece(request, kept)
            return
        output = Output()
        ended = [True]

        def fetch(index: int) -> None:
            if index < len(names):
                self._fetch_part(request, names[index], lambda log: part(index, log))
                return
            if ended[0]:
                self._keep(key, output)
            self._send_piece(request, output)

        def part(index: int, found: Json | None) -> None:
            if found is None:
                self._connection.answer(request["ask"], result=None)
                return
            ended[0] = ended[0] and '"clean"' in found["eventlog"]
            read_output(found.get("guest.output") or "", output)
            fetch(index + 1)

        fetch(0)

    def _fetch_part(self, request: Json, name: str, then: Callable[[Json | None], None]) -> None:
        """Fetch what Flux keeps of a part; None when it is purged, or somebody else's job."""

        def lookup(keys: list[str], arrived: Callable[[Json | None], None]) -> None:
            def answered(future: Any) -> None:
                try:
                    arrived(future.get())
                except OSError as exc:
                    if exc.errno == errno.ENOENT:
                        arrived(None)
                    else:
                        self._connection.answer(request["ask"], error=f"Flux does not answer (job-info): {exc}")

            payload = {"id": number_of(name), "keys": keys, "flags": 0}
            self._connection.rpc("job-info.lookup", payload, answered, timeout=OUTPUT_WITHIN)

        def found(job: Json | None) -> None:
            mark = mark_in(job["jobspec"], self._owner) if job is not None else None
            if job is None or mark is None or key_of(mark) != key_of(request["mark"]):
                then(None)
                return
            lookup(["guest.output"], lambda output: then({**job, **(output or {})}))

        lookup(["jobspec", "eventlog"], found)

    def _send_piece(self, request: Json, output: Output) -> None:
        piece = output.piece((request["stdout"], request["stderr"]), request["limit"])
        self._connection.answer(request["ask"], result=piece)

    def _keep(self, key: tuple[str, ...], output: Output) -> None:
        self._kept[key] = output
        while sum(kept.size for kept in self._kept.values()) > _KEPT_OUTPUT and len(self._kept) > 1:
            self._kept.pop(next(iter(self._kept)))


class _Gathered:
    """Waits for all answers to one question; an error answers the question with it."""

    def __init__(self, connection: Connection, ask: int, wanted: set[str], then: Callable[[Json], None]) -> None:
        self._connection = connection
        self._ask = ask
        self._wanted = wanted
        self._then = then
        self._answers: Json = {}

    def arrived(self, future: Any, name: str) -> None:
        try:
            self.put(name, future.get())
        except OSError as exc:
            self._connection.answer(self._ask, error=f"Flux does not answer ({name}): {exc}")

    def put(self, name: str, value: Any) -> None:
        self._answers[name] = value
        if self._wanted <= self._answers.keys():
            self._then(self._answers)


def queue_states(answers: Json) -> Json:
    return {name[len(_QUEUE) :]: status for name, status in answers.items() if name.startswith(_QUEUE)}


def closed_queues(answers: Json) -> Json:
    """Return the queues that take or start no jobs now, with the reason."""
    closed = {}
    for name, status in queue_states(answers).items():
        for key, word in (("enable", "disabled"), ("start", "stopped")):
            if not status.get(key):
                reason = status.get(f"{'disable' if key == 'enable' else 'stop'}_reason")
                closed[name] = f"{f'queue {name}' if name else 'the queue'} is {word}" + (
                    f": {reason}" if reason else ""
                )
                break
    return closed


def usage_of(got: Json) -> Json:
    """Return numbers from the scheduler's resource sets and the counts of jobs by state, and the closed queues."""
    resources = SchedResourceList(got["resources"])
    free = resources.free
    whole = set(resources.up.ranks) - set(resources.allocated.ranks)
    states = got["jobs"]["job_states"]
    queues = queue_states(got)
    return {
        "nodes_free": len(whole),
        "cores_free": free.ncores,
        "gpus_free": free.ngpus,
        "nodes_up": resources.up.nnodes,
        "jobs_pending": states["depend"] + states["priority"] + states["sched"],
        "jobs_running": states["run"] + states["cleanup"],
        "stopped": sorted(name or "default" for name, status in queues.items() if not status.get("start")),
        "disabled": sorted(name or "default" for name, status in queues.items() if not status.get("enable")),
    }


def outlook_of(status: Json, jobs: list[Json]) -> Json:
    """Return sizes as ``[nodes, cores, gpus]``.

    Flux does not list the GPUs of a job: they are taken to be held in proportion to cores. Held jobs (urgency 0) are in
    the way of no other job.
    """
    resources = SchedResourceList(status)
    total, up, free, allocated = resources.all, resources.up, resources.free, resources.allocated
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
        "total": [total.nnodes, total.ncores, total.ngpus],
        "up": [up.nnodes, up.ncores, up.ngpus],
        "free": [len(whole), free.ncores, free.ngpus],
        "busy": busy,
        "waiting": waiting,
    }
