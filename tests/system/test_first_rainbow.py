"""The faults of the first rainbow, each shown to be impossible here."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from rainbow.errors import InvalidInput
from rainbow_workers.service import Service, ServiceOptions
from rig import Rig, eventually, resources


@pytest.fixture
def rig(amqp_url: str, redis_url: str, redis_prefix: str) -> Iterator[Rig]:
    with Rig(amqp_url, redis_url, prefix=redis_prefix, options=ServiceOptions(retry_after=0.5)) as made:
        yield made


def test_after_a_restart_the_graph_is_still_there_and_the_name_can_be_registered_again(rig: Rig) -> None:
    rig.register("red", resources(nodes=3))
    rig.service.stop()
    assert rig.service.failed() is None
    rig.service = Service(rig.worker_broker, rig.store, rig.ring, rig.options)
    rig.service.start()
    assert rig.submit(command=["a"], nodes=3)["cluster"] == "red"
    assert not rig.register("red", resources(nodes=5))["created"]
    assert rig.submit(command=["a"], nodes=5)["cluster"] == "red"


@pytest.mark.parametrize("text", ["%", "red' OR '1'='1", "'; DROP TABLE clusters; --", '{"$gt": ""}', "*' HGETALL *"])
def test_nothing_of_a_message_is_ever_part_of_a_query(rig: Rig, text: str) -> None:
    rig.register("red")
    assert rig.submit(token=text, command=["a"])["status"] == "denied"
    token = rig.issue("mallory", clusters=(text,))
    answer = rig.submit(token=token, command=["a"])
    assert answer["status"] == "no-match", "a token for a strange name covers nothing"
    with pytest.raises(InvalidInput):
        rig.rpc.call({"op": "state", "report": {"cluster": text, "values": {}, "heartbeat": False}})
    named = rig.submit(command=["a"], name=text)
    assert rig.job(named["id"])["name"] == text  # type: ignore[index]


def test_a_sort_of_one_job_is_not_another_s(rig: Rig) -> None:
    rig.register("cheap")
    rig.register("dear")
    rig.report("cheap", heartbeat=False, cost_per_node_hour=1)
    rig.report("dear", heartbeat=False, cost_per_node_hour=9)

    def by(direction: str) -> dict[str, object]:
        steps = [{f"sort_{direction}": "cost_per_node_hour"}, {"select": "first"}]
        return {"name": "constraint", "options": {"priorities": [{"priority": 1, "steps": steps}]}}

    eventually(lambda: rig.submit(command=["a"], selection=by("ascending"))["cluster"] == "cheap", 60)
    for _ in range(3):
        assert rig.submit(command=["a"], selection=by("ascending"))["cluster"] == "cheap"
        assert rig.submit(command=["a"], selection=by("descending"))["cluster"] == "dear"


def test_thirteen_cores_do_not_match_nodes_of_twelve(rig: Rig) -> None:
    """Totals were compared: 3 nodes of 12 cores have 36."""
    rig.register("red", resources(nodes=3, cores=12))
    answer = rig.submit(command=["a"], nodes=1, tasks=1, cores_per_task=13)
    assert answer["status"] == "no-match"
    assert "13" in answer["reasons"]["red"]["detail"]
    assert rig.submit(command=["a"], nodes=1, tasks=1, cores_per_task=12)["status"] == "assigned"


def test_two_receivers_of_one_cluster_share_its_jobs(rig: Rig) -> None:
    rig.register("red")
    ids = {rig.submit(command=["a"])["id"] for _ in range(20)}
    first, second = rig.jobs_of("red", prefetch=5), rig.jobs_of("red", prefetch=5)
    seen: list[str] = []
    while len(seen) < 20:
        for consumer in (first, second):
            taken = consumer.take(5, 0.5)
            seen.extend(rig.open(d)["id"] for d in taken)
            consumer.ack(taken)
    assert len(seen) == 20
    assert set(seen) == ids


def test_the_submitter_is_told_the_job_s_id_and_name(rig: Rig) -> None:
    rig.register("red")
    answer = rig.submit(command=["hostname"], name="my-job")
    assert uuid.UUID(answer["id"])
    assert rig.job(answer["id"])["name"] == "my-job"  # type: ignore[index]


def test_more_matching_clusters_than_tokens_is_no_surprise(rig: Rig) -> None:
    """Its command line crashed when more clusters matched than its file listed."""
    for number in range(12):
        rig.register(f"c{number}")
    token = rig.issue("bob", clusters=("c3",))
    answer = rig.submit(token=token, command=["a"])
    assert (answer["cluster"], answer["total_clusters"], answer["total_matches"]) == ("c3", 12, 1)
    everything = rig.submit(command=["a"], satisfy_only=True)
    assert len(everything["clusters"]) == everything["total_matches"] == 12
    assert everything["total_mismatches"] == 0
