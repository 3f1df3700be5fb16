"""A batch of assignments as the script `place` writes it: records packed here, arguments of its commands in lists.

It writes what `assign` would write for jobs that nobody knows (see `lua/lib/jobs.lua` for the keys); the contract
tests read both back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rainbow.jobspec.request import Demand
from rainbow.models.job import RANK
from rainbow_workers.stores.base import BETWEEN, Assignment
from rainbow_workers.stores.history import assignment_entry
from rainbow_workers.stores.jobspecs import Jobspecs
from rainbow_workers.stores.redis.codec import Shared, moment, number, opaque, pack, packer

_ASSIGNED = RANK["assigned"]


def placement(
    batch: Sequence[Assignment], room: Mapping[str, Demand], prefix: str, jobspecs: Jobspecs
) -> tuple[float, bytes]:
    """The arguments of `place` after call id and version: seconds reserved, and the packed batch."""
    keys: list[str] = []
    values: list[str | bytes] = []
    scores: list[str] = []
    indexes: dict[str, list[str]] = {}
    demands: list[str] = []
    sums: dict[str, list[int]] = {}
    job_key = f"{prefix}job:"
    packed = packer().pack
    shared, counts, arrays = Shared(jobspecs), Counter[str](), Counter[str]()
    histories: dict[tuple[str, int, float], bytes] = {}
    # Jobs of one kind share the object.
    texts: dict[int, tuple[str, int, int, int]] = {}
    for a in batch:
        job, attempt, cluster = a.id, a.attempt, a.cluster
        at, submitted_at = moment(a.at), moment(a.submitted_at)
        record = _record(a, at, submitted_at)
        for name, digest in (("looked", shared.digest(a.looked)), ("spec", shared.jobspec(a.jobspec))):
            if digest is not None:
                record[name] = digest
                counts[digest] += 1
        history = histories.get((cluster, attempt, at))
        if history is None:
            history = histories[cluster, attempt, at] = packed([b"+" + opaque(assignment_entry(a))])
        key = job_key + job
        keys.append(key)
        values += (key, packed(record) + history + packed(opaque(a.answer)))
        entry = (f"{submitted_at:.6f}", job)
        if a.array is not None:
            within = f"jobs:array:{a.array}", f"jobs:live:{a.array}"
            arrays[a.array] += 1
        else:
            within = f"jobs:cluster:{cluster}", f"jobs:user:{a.user}"
            scores += entry
        for index in within:
            known = indexes.get(index)
            if known is None:
                known = indexes[index] = []
            known += entry
        demand = a.demand
        text = texts.get(id(demand))
        if text is None:
            nodes, cores, gpus = number(demand.nodes), number(demand.cores), number(demand.gpus)
            text = texts[id(demand)] = f"{nodes} {cores} {gpus}", nodes, cores, gpus
        demands += (f"{cluster} {attempt} {job}", text[0])
        total = sums.get(cluster)
        if total is None:
            sums[cluster] = [*text[1:]]
        else:
            total[0] += text[1]
            total[1] += text[2]
            total[2] += text[3]
    totals = {name: [number(t.nodes), number(t.cores), number(t.gpus)] for name, t in room.items()}
    flat = [part for total in sums.values() for part in total]
    written = [keys, values, scores, list(indexes.items()), demands, list(sums), flat]
    return batch[0].reserve_s, pack([*written, counts, shared.texts, totals, _tally(batch), arrays])


def _record(a: Assignment, at: float, submitted_at: float) -> dict[str, Any]:
    record = {
        "id": a.id,
        "created": submitted_at,
        "times": {"submitted": submitted_at, "assigned": at},
        "state": "assigned",
        "rank": _ASSIGNED,
        "attempt": a.attempt,
        "cluster": a.cluster,
        "user": a.user,
        "account": a.account,
        "registration": a.registration,
    }
    if a.name is not None:
        record["name"] = a.name
    if a.array is not None:
        record |= {"array": a.array, "index": a.index}
    return record


def _tally(batch: Sequence[Assignment]) -> Counter[str]:
    """How many jobs more are on clusters, by field of the tally."""
    payers = Counter((a.account, a.user) for a in batch)
    return Counter({BETWEEN.join(("r", a, user)): n for (a, user), n in payers.items() if a is not None})
