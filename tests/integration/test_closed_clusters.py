"""A cluster that says that no job would start now comes after those that start jobs; it stays a choice."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from rainbow.client import ClusterView
from rainbow.jobspec import simple
from rainbow.models.wire import parse
from rig import Rig, eventually


@pytest.fixture
def rig() -> Iterator[Rig]:
    name = uuid.uuid4()
    with Rig(f"memory://{name}", f"memory://{name}") as rig:
        for cluster in ("blue", "red"):
            rig.register(cluster)
            rig.report(cluster, cores_free=32, nodes_free=4)
        yield rig


def where(rig: Rig) -> str:
    cluster: str = rig.submit(command=["true"], selection={"name": "first"})["cluster"]
    return cluster


def test_a_closed_cluster_comes_last_and_explain_says_why(rig: Rig) -> None:
    eventually(lambda: where(rig) == "blue")
    rig.report("blue", closed="queue batch is stopped")
    eventually(lambda: where(rig) == "red")
    job = rig.submit(command=["true"], selection={"name": "first"})["id"]
    answer = eventually(lambda: (rig.job(job) or {}).get("answer"))
    assert answer["reasons"]["blue"] == {"code": "closed", "detail": "queue batch is stopped"}
    known = rig.rpc.call({"op": "clusters"})["clusters"]
    assert {c["name"]: parse(ClusterView, c).status for c in known} == {"blue": "closed", "red": "alive"}
    rig.report("red", closed="the agent is executor-down")
    eventually(lambda: where(rig) == "blue")
    rig.report("blue", closed="")
    rig.report("red", closed="")
    eventually(lambda: where(rig) == "blue")


def test_a_job_that_names_a_queue_goes_where_that_queue_starts_jobs(rig: Rig) -> None:
    def named(queue: str | None) -> str:
        spec = simple(["true"])
        if queue is not None:
            spec["attributes"]["system"]["queue"] = queue
        cluster: str = rig.submit(jobspec=spec, selection={"name": "first"})["cluster"]
        return cluster

    rig.report("blue", queues_stopped="debug", queues_disabled="old,older", closed="")
    eventually(lambda: named("debug") == "red")
    assert [named(queue) for queue in ("old", "batch", None)] == ["red", "blue", "blue"]
    job = rig.submit(jobspec=simple(["true"]) | {"attributes": {"system": {"duration": 0, "queue": "older"}}})["id"]
    answer = eventually(lambda: (rig.job(job) or {}).get("answer"))
    assert answer["reasons"]["blue"] == {"code": "closed", "detail": "queue older is stopped or disabled"}
    rig.report("blue", queues_stopped="batch", queues_disabled="", closed="queue batch is stopped: maintenance")
    eventually(lambda: named(None) == "red")
    assert [named(queue) for queue in ("batch", "debug")] == ["red", "blue"]
