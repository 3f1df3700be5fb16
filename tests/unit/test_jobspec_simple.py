"""The simple form follows ``flux submit``."""

from __future__ import annotations

from typing import Any

import pytest

from rainbow.errors import InvalidJobspec
from rainbow.jobspec import Demand, Requirement, read, simple
from rainbow.jobspec.flux.v1 import V1Translator


def test_a_command_alone_gets_one_core() -> None:
    document = simple("sleep '1 2'")
    assert document == {
        "version": 1,
        "resources": [{"type": "slot", "count": 1, "label": "task", "with": [{"type": "core", "count": 1}]}],
        "tasks": [{"command": ["sleep", "1 2"], "slot": "task", "count": {"per_slot": 1}}],
        "attributes": {"system": {"duration": 0, "environment": {}}},
    }
    assert read(document, dialect="V1").demand == Demand(nodes=0, cores=1)


@pytest.mark.parametrize(
    ("numbers", "nodes", "slots", "count", "exclusive"),
    [
        ({"tasks": 5}, None, 5, {"per_slot": 1}, None),
        ({"nodes": 4}, 4, 1, {"per_slot": 1}, True),
        ({"nodes": 4, "tasks": 8}, 4, 2, {"per_slot": 1}, None),
        ({"nodes": 4, "tasks": 4}, 4, 1, {"per_slot": 1}, None),
        ({"nodes": 2, "tasks": 5}, 2, 3, {"total": 5}, None),
    ],
)
def test_nodes_and_tasks(
    numbers: dict[str, Any], nodes: int | None, slots: int, count: dict[str, int], exclusive: bool | None
) -> None:
    document = simple(["a"], **numbers)
    assert read(document, dialect="V1").dialect == "V1"
    top = document["resources"][0]
    slot = top if nodes is None else top["with"][0]
    assert (top["count"], slot["count"]) == (nodes or slots, slots)
    assert top.get("exclusive") is exclusive
    assert document["tasks"][0]["count"] == count


def test_everything_given() -> None:
    document = simple(
        ("a", "b"),
        tasks=2,
        cores_per_task=3,
        gpus_per_task=1,
        duration="1.5h",
        cwd="/work",
        environment={"A": "b"},
        name="mine",
        image="docker://x",
    )
    jobspec = read(document, dialect="V1")
    assert jobspec.demand == Demand(cores=6, gpus=2)
    assert (jobspec.name, jobspec.duration) == ("mine", 5400.0)
    assert document["attributes"] == {
        "system": {"duration": 5400, "environment": {"A": "b"}, "cwd": "/work", "job": {"name": "mine"}},
        "user": {"rainbow": {"image": "docker://x"}},
    }


def test_requires_make_it_nextgen_and_it_still_translates_to_the_same() -> None:
    wish = {"name": "io", "field": "type", "match": "shm"}
    settings: dict[str, Any] = {"cores_per_task": 2, "gpus_per_task": 1, "duration": 60, "cwd": "/w", "image": "i"}
    cases: tuple[dict[str, Any], ...] = ({"nodes": 2, "tasks": 5}, {"nodes": 3}, {"nodes": 1, "tasks": 4})
    for numbers in cases:
        jobspec = read(simple(["x"], requires=[wish], name="n", **numbers, **settings))
        assert jobspec.dialect == "nextgen"
        assert jobspec.request.resources[0].requires == (Requirement("io", "type", "match", (("match", "shm"),)),)
        (job,) = V1Translator().translate(jobspec)
        assert job.document == simple(["x"], name="n", **numbers, **settings)
    one = read(simple(["x"], requires=[wish], tasks=4))
    assert one.demand == Demand(nodes=1, cores=4)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"nodes": 3, "tasks": 2}, "3 nodes for 2 tasks"),
        ({"nodes": 0}, "nodes"),
        ({"tasks": -1}, "tasks"),
        ({"tasks": True}, "tasks"),
        ({"cores_per_task": 0}, "cores_per_task"),
        ({"gpus_per_task": -1}, "gpus_per_task"),
        ({"duration": "soon"}, "duration"),
        ({"duration": -1}, "duration"),
        ({"cwd": ""}, "cwd"),
        ({"name": 1}, "name"),
        ({"environment": {"A=B": "c"}}, "environment"),
        ({"environment": {"A": None}}, "environment.A"),
        ({"environment": ["A=b"]}, "environment"),
        ({"command": ""}, "command"),
        ({"command": []}, "command"),
        ({"command": ["a", 1]}, "command"),
        ({"command": "a 'b"}, "quotes"),
        ({"command": 7}, "command"),
    ],
)
def test_refusals(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidJobspec, match=words):
        simple(**{"command": ["a"], **arguments})
