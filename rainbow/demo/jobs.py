"""The demo's jobs, and where each must end for the demo to have shown what it is about."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rainbow.client.submission import JobFields
from rainbow.demo.clusters import GUEST, MEMBER
from rainbow.models.job import JobRecord

_HELLO = "import platform; print('hello from', platform.node())"
_SUM = "print('sum of squares:', sum(i * i for i in range(1_000_000)))"

#: A Flux jobspec V1 (RFC 25): two nodes, one slot each, of 18 cores and a gpu.
GPU_JOBSPEC: dict[str, Any] = {
    "version": 1,
    "resources": [
        {
            "type": "node",
            "count": 2,
            "with": [
                {
                    "type": "slot",
                    "count": 1,
                    "label": "task",
                    "with": [{"type": "core", "count": 18}, {"type": "gpu", "count": 1}],
                }
            ],
        }
    ],
    "tasks": [{"command": ["echo", "training on 2 gpus"], "slot": "task", "count": {"per_slot": 1}}],
    "attributes": {"system": {"duration": 60, "job": {"name": "train"}}},
}


@dataclass(frozen=True)
class Shown:
    """A job of the demo. `cluster` is where it must end (None: anywhere, or nowhere when it cannot be placed)."""

    title: str
    job: JobFields
    state: str = "completed"
    cluster: str | None = None
    attempts: int = 1
    user: str = MEMBER


@dataclass
class Outcome:
    """What became of a job of the demo."""

    shown: Shown
    record: JobRecord
    problems: list[str] = field(default_factory=list)


def _python(code: str) -> Sequence[str]:
    return [sys.executable, "-c", code]


def jobs() -> list[Shown]:
    """The jobs of the demo, with what each of them shows."""
    return [
        Shown("one task, anywhere", {"command": _python(_HELLO), "name": "hello"}),
        Shown("2 nodes with 18 cores and a gpu each (jobspec V1)", {"jobspec": GPU_JOBSPEC}, cluster="tiny"),
        Shown("4 nodes", {"command": _python(_SUM), "nodes": 4, "name": "wide"}, cluster="aqua"),
        Shown(
            "a node with nvme (subsystem io)",
            {
                "command": ["echo", "checkpoint written to nvme"],
                "nodes": 1,
                "name": "checkpoint",
                "requires": [{"name": "io", "field": "type", "match": "nvme"}],
            },
            cluster="red",
        ),
        Shown(
            "refused by its first cluster, runs on the second",
            {"command": _python(_HELLO), "name": "guest-job", "selection": "first", "clusters": ["aqua", "red"]},
            cluster="red",
            attempts=2,
            user=GUEST,
        ),
        Shown("ends with an error", {"command": ["sh", "-c", "echo no input >&2; exit 3"], "name": "broken"}, "failed"),
        Shown("more than anybody has", {"command": ["true"], "nodes": 8, "name": "huge"}, "no-match"),
    ]


def check(shown: Shown, record: JobRecord) -> list[str]:
    """What is not as it must be, a line each."""
    problems = []
    if record.state != shown.state:
        problems.append(f"ended {record.state}, not {shown.state}")
    if shown.cluster is not None and record.cluster != shown.cluster:
        problems.append(f"ran on {record.cluster}, not {shown.cluster}")
    if shown.state == "completed" and record.attempt != shown.attempts:
        problems.append(f"took {record.attempt} attempts, not {shown.attempts}")
    return problems
