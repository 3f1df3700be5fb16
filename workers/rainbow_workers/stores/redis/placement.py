"""A batch of assignments as the script `place` writes it: records packed here, arguments of its commands in lists.

It writes what `assign` would write for jobs that nobody knows (see `lua/lib/jobs.lua` for the keys); the contract
tests read both back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rainbow.models.job import RANK
from rainbow_workers.stores.base import Assignment
from rainbow_workers.stores.history import assignment_entry
from rainbow_workers.stores.redis.codec import Shared, moment, number, opaque, pack, packer

_ASSIGNED = RANK["assigned"]


def placement(batch: Sequence[Assignment], prefix: str) -> tuple[float, bytes]:
    """The arguments of `place` after call id and version: seconds reserved, and the packed batch."""
    keys: list[str] = []
    values: list[str | bytes] = []
    scores: list[str] = []
    indexes: dict[str, list[str]] = {}
    demands: list[str] = []
    sums: dict[str, list[int]] = {}
    job_key = f"{prefix}job:"
    packed = packer().pack
    shared, counts = Shared(), Counter[str]()
    for a in batch:
        id, attempt, cluster = a.id, number(a.attempt), a.cluster
        at, submitted_at = moment(a.at), moment(a.submitted_at)
        record = {
            "id": id,
            "created": submitted_at,
            "times": {"submitted": submitted_at, "assigned": at},
            "state": "assigned",
            "rank": _ASSIGNED,
            "attempt": attempt,
            "cluster": cluster,
            "user": a.user,
        }
        if a.name is not None:
            record["name"] = a.name
        looked = shared.digest(a.looked)
        if looked:
            record["looked"] = looked
            counts[looked] += 1
        key = job_key + id
        keys.append(key)
        history = [b"+" + opaque(assignment_entry(a))]
        values += (key, packed(record) + packed(history) + packed(opaque(a.answer)))
        entry = (f"{submitted_at:.6f}", id)
        scores += entry
        for index in (f"jobs:cluster:{cluster}", f"jobs:user:{a.user}"):
            known = indexes.get(index)
            if known is None:
                known = indexes[index] = []
            known += entry
        nodes, cores, gpus = number(a.demand.nodes), number(a.demand.cores), number(a.demand.gpus)
        demands += (f"{cluster} {attempt} {id}", f"{nodes} {cores} {gpus}")
        total = sums.get(cluster)
        if total is None:
            sums[cluster] = [nodes, cores, gpus]
        else:
            total[0] += nodes
            total[1] += cores
            total[2] += gpus
    flat = [part for total in sums.values() for part in total]
    return batch[0].reserve_s, pack(
        [keys, values, scores, list(indexes.items()), demands, list(sums), flat, counts, shared.texts]
    )
