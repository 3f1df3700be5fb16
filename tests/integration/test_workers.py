"""The scheduler side against a hand-written submitter and agent, in memory and on RabbitMQ with Redis."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import msgpack
import pytest

from rainbow import codec, topology
from rainbow.client.rpc import Rpc
from rainbow.errors import Conflict, Denied, InvalidInput, NotFound, StoreUnavailable
from rainbow.security import signing
from rainbow_workers.clusters.sync import CacheSync
from rainbow_workers.service import ServiceOptions
from rig import Rig, eventually, resources

OPTIONS = ServiceOptions(retry_after=0.5)
IMPATIENT = ServiceOptions(retry_after=0.5, limits=topology.Limits(dispatch_timeout=2.0))


def _made(request: pytest.FixtureRequest, options: ServiceOptions) -> Rig:
    if request.param == "memory":
        name = uuid.uuid4().hex
        return Rig(f"memory://{name}", f"memory://{name}", options=options)
    return Rig(
        request.getfixturevalue("amqp_url"),
        request.getfixturevalue("redis_url"),
        prefix=request.getfixturevalue("redis_prefix"),
        options=options,
    )


@pytest.fixture(params=["memory", "servers"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    with _made(request, OPTIONS) as made:
        yield made


@pytest.fixture(params=["memory", "servers"])
def impatient(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """A rig whose dispatches come back after two seconds."""
    with _made(request, IMPATIENT) as made:
        yield made


# -- the way there and back ----------------------------------------------------------------------------------


def test_a_job_goes_to_a_cluster_runs_and_its_end_is_known(rig: Rig) -> None:
    rig.register("red")
    answer = rig.submit(command=["hostname"], nodes=2, name="hello")
    assert answer["status"] == "assigned"
    assert answer["cluster"] == "red"
    assert answer["attempt"] == 1
    assert (answer["total_clusters"], answer["total_matches"], answer["total_mismatches"]) == (1, 1, 0)

    consumer = rig.jobs_of("red")
    [delivery] = consumer.take(1, 10)
    dispatch = rig.open(delivery)
    assert dispatch["id"] == answer["id"]
    assert dispatch["user"] == "alice"
    assert dispatch["jobspec"]["tasks"][0]["command"] == ["hostname"]
    assert rig.token not in repr(delivery.body)
    rig.event("red", answer["id"], 1, "accepted", flux_id="ƒ1")
    consumer.ack([delivery])
    rig.event("red", answer["id"], 1, "running")
    rig.event("red", answer["id"], 1, "completed", returncode=0)

    record = rig.until(answer["id"], "completed")
    assert record["returncode"] == 0
    assert record["cluster"] == "red"
    assert [e["state"] for e in record["history"]] == ["assigned", "accepted", "running", "completed"]
    assert set(record["times"]) >= {"submitted", "assigned", "accepted", "running", "ended"}


def test_clusters_are_chosen_by_what_they_have(rig: Rig) -> None:
    rig.register("small", resources(nodes=1, cores=4))
    rig.register("big", resources(nodes=8, cores=32))
    rig.register("gpu", resources(nodes=2, cores=4, gpus=2))
    assert rig.submit(command=["a"], nodes=6)["cluster"] == "big"
    assert rig.submit(command=["a"], gpus_per_task=1)["cluster"] == "gpu"
    nowhere = rig.submit(command=["a"], nodes=9)
    assert nowhere["status"] == "no-match"
    assert {name: reason["code"] for name, reason in nowhere["reasons"].items()} == {
        "small": "too-few-nodes",
        "big": "too-few-nodes",
        "gpu": "too-few-nodes",
    }
    assert "needs 9" in nowhere["reasons"]["big"]["detail"]
    assert "has 8" in nowhere["reasons"]["big"]["detail"]
    assert rig.until(nowhere["id"], "no-match")["answer"]["reasons"].keys() == {"small", "big", "gpu"}


def test_a_rejected_job_goes_to_the_next_cluster(rig: Rig) -> None:
    rig.register("red")
    rig.register("blue")
    answer = rig.submit(command=["a"], selection={"name": "first"})
    assert answer["cluster"] == "blue"
    blue = rig.jobs_of("blue")
    [delivery] = blue.take(1, 10)
    rig.event("blue", answer["id"], 1, "rejected", code="policy", detail="user alice is not allowed here")
    blue.reject([delivery])

    red = rig.jobs_of("red")
    [second] = red.take(1, 10)
    dispatch = rig.open(second)
    assert (dispatch["id"], dispatch["attempt"], dispatch["cluster"]) == (answer["id"], 2, "red")
    # What was agreed with the submitter holds for the second attempt as well.
    red.ack([second])
    rig.event("red", answer["id"], 2, "accepted")
    rig.event("red", answer["id"], 2, "completed", returncode=0)
    record = rig.until(answer["id"], "completed")
    assert record["attempt"] == 2
    refused = next(e for e in record["history"] if e["state"] == "rejected")
    assert refused["detail"] == "user alice is not allowed here"


def test_a_job_that_all_refuse_ends_with_the_reason_of_each(rig: Rig) -> None:
    rig.register("red")
    rig.register("blue")
    answer = rig.submit(command=["a"], selection="first")
    for attempt, cluster in enumerate(("blue", "red"), start=1):
        consumer = rig.jobs_of(cluster)
        [delivery] = consumer.take(1, 10)
        rig.event(cluster, answer["id"], attempt, "rejected", code="no-fit", detail=f"not on {cluster}")
        consumer.reject([delivery])
    record = rig.until(answer["id"], "unsatisfiable")
    reasons = record["answer"]["reasons"]
    assert {c: r["detail"] for c, r in reasons.items()} == {"blue": "not on blue", "red": "not on red"}


def test_a_busy_cluster_is_asked_again_later(rig: Rig) -> None:
    rig.register("red")
    answer = rig.submit(command=["a"])
    consumer = rig.jobs_of("red")
    for attempt in (1, 2):
        [delivery] = consumer.take(1, 15)
        assert rig.open(delivery)["attempt"] == attempt
        rig.event("red", answer["id"], attempt, "rejected", code="busy", detail="queue is full")
        consumer.reject([delivery])
    [delivery] = consumer.take(1, 15)
    assert rig.open(delivery)["attempt"] == 3
    consumer.ack([delivery])


def test_a_job_nobody_takes_comes_back_and_goes_elsewhere(impatient: Rig) -> None:
    impatient.register("red")
    impatient.register("blue")
    answer = impatient.submit(command=["a"], selection="first")
    assert answer["cluster"] == "blue"
    red = impatient.jobs_of("red")
    [delivery] = red.take(1, 20)
    assert impatient.open(delivery)["attempt"] == 2
    red.ack([delivery])
    # The old cluster's agent is told that the first attempt is off, should it wake up with it.
    told = impatient.broker.consume(topology.agent_queue("blue"), prefetch=10)
    [command] = told.take(1, 10)
    sent = json.loads(command.body)
    assert (sent["command"], sent["id"], sent["attempt"]) == ("cancel", answer["id"], 1)


def test_an_event_is_kept_while_the_store_cannot_say_whose_it_is(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.register("red")
    answer = rig.submit(command=["a"])
    asked = []
    plain = CacheSync.is_current

    def is_current(self: CacheSync, cluster: str, registration: str) -> bool:
        asked.append(cluster)
        if len(asked) <= 2:
            raise StoreUnavailable("the store does not answer in time")
        return plain(self, cluster, registration)

    monkeypatch.setattr(CacheSync, "is_current", is_current)
    rig.event("red", answer["id"], 1, "completed", returncode=0)
    assert rig.until(answer["id"], "completed")["returncode"] == 0
    assert len(asked) == 3
    assert rig.dead_letters() == []


def test_late_events_of_an_older_attempt_change_nothing(rig: Rig) -> None:
    """S38: the newer attempt owns the state; what the older one says is history."""
    rig.register("red")
    rig.register("blue")
    answer = rig.submit(command=["a"], selection="first")
    blue, red = rig.jobs_of("blue"), rig.jobs_of("red")
    [delivery] = blue.take(1, 10)
    rig.event("blue", answer["id"], 1, "rejected", code="error")
    blue.reject([delivery])
    [delivery] = red.take(1, 10)
    red.ack([delivery])
    rig.event("red", answer["id"], 2, "accepted")
    rig.until(answer["id"], "accepted")
    rig.event("blue", answer["id"], 1, "failed", returncode=1)
    rig.event("red", answer["id"], 2, "running")
    record = rig.until(answer["id"], "running")
    assert record["cluster"] == "red"


# -- bad input -----------------------------------------------------------------------------------------------


BAD_BODIES = {
    "not json": (b"{nope", "not JSON"),
    "not utf-8": (b"\xff\xfe", "not UTF-8"),
    "not a mapping": (b"[1]", "list"),
    "nan": (b'{"version": NaN}', "NaN"),
    "twice": (b'{"name": "a", "name": "b"}', "given twice"),
    "deep": (b'{"jobspec":' + b"[" * 500 + b"]" * 500 + b"}", "nested"),
    "huge number": (b'{"nodes": ' + b"9" * 5000 + b"}", "JSON"),
    "empty": (b"", "JSON"),
}


@pytest.mark.parametrize("name", BAD_BODIES)
def test_what_cannot_be_read_becomes_one_dead_letter_and_the_next_job_runs(rig: Rig, name: str) -> None:
    """S19: whatever the bytes are, they end nobody, and they are kept with the reason."""
    body, words = BAD_BODIES[name]
    rig.register("red")
    rig.publish(body, reply_to=rig.replies.address, correlation_id="bad")
    answer = rig.answer("bad")
    assert answer["status"] == "invalid"
    assert words in answer["error"]
    assert rig.submit(command=["true"])["status"] == "assigned"
    [letter] = rig.dead_letters()
    assert words in letter.headers["rainbow-detail"]
    assert letter.headers["rainbow-queue"] == topology.SCHEDULER_QUEUE


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"command": ["a"], "nodez": 2}, "unknown field 'nodez'"),
        ({"command": ["a"], "nodes": "two"}, "'nodes'"),
        ({"command": ["a"], "nodes": 0}, "'nodes'"),
        ({"command": []}, "command is empty"),
        ({}, "give either jobspec or command"),
        ({"command": ["a"], "jobspec": {}}, "give either jobspec or command"),
        ({"jobspec": {"version": 1, "resources": [], "tasks": [], "attributes": {}}}, "resources"),
        ({"jobspec": "version: 2\n"}, "version"),
        ({"command": ["a"], "selection": "best"}, "choose one of"),
        ({"command": ["a"], "match": "best"}, "choose one of"),
        ({"command": ["a"], "version": 2}, "'version'"),
        ({"command": ["a"], "id": "x"}, "'id'"),
        ({"command": ["a"], "nodes": 4, "tasks": 2}, "nodes"),
        ({"command": ["a"], "duration": "soon"}, "duration"),
        ({"command": ["a"], "expires": "tomorrow"}, "'expires'"),
    ],
)
def test_what_is_wrong_is_named(rig: Rig, fields: dict[str, object], words: str) -> None:
    rig.register("red")
    answer = rig.submit(**fields)
    assert answer["status"] == "invalid"
    assert words in answer["error"]
    assert rig.submit(command=["true"])["status"] == "assigned"


def test_a_jobspec_without_tasks_is_refused(rig: Rig) -> None:
    rig.register("red")
    spec = {"version": 1, "resources": [{"type": "node", "count": 1}], "attributes": {}}
    for jobspec in (spec, {"version": 1}, "version: 1\nresources: {a: {type: node, count: 1}}\n"):
        answer = rig.submit(jobspec=jobspec)
        assert answer["status"] == "invalid"
        assert "tasks" in answer["error"]
    assert rig.submit(jobspec={"version": 1}, satisfy_only=True)["status"] == "satisfied"


def test_a_large_body_is_refused_with_the_limit(rig: Rig) -> None:
    """S18: answered with the size that is allowed; the next job on the same channel is taken."""
    rig.register("red")
    rig.publish(b'{"name": "' + b"x" * (50 << 20) + b'"}', reply_to=rig.replies.address, correlation_id="large")
    answer = rig.answer("large", 60)
    assert answer["status"] == "invalid"
    assert "1048576" in answer["error"]
    [letter] = rig.dead_letters()
    assert letter.headers["rainbow-bytes"] > 50 << 20
    assert len(letter.body) <= 256 << 10
    assert rig.submit(command=["true"])["status"] == "assigned"


# -- tokens --------------------------------------------------------------------------------------------------


def test_tokens_decide_who_may_submit_where(rig: Rig) -> None:
    rig.register("red")
    rig.register("blue")
    body = codec.encode_json({"command": ["a"]})
    rig.publish(body, reply_to=rig.replies.address, correlation_id="none")
    assert rig.answer("none")["status"] == "denied"
    assert rig.submit(token="nonsense", command=["a"])["status"] == "denied"
    agent = rig.issue("mallory", "agent", ("red",))
    refused = rig.submit(token=agent, command=["a"])
    assert refused["status"] == "denied"
    assert "role agent" in refused["error"]
    red = rig.issue("bob", clusters=("red",))
    for _ in range(4):
        assert rig.submit(token=red, command=["a"])["cluster"] == "red"
    nowhere = rig.submit(token=red, command=["a"], clusters=["blue"])
    assert nowhere["status"] == "no-match"
    assert nowhere["reasons"]["blue"]["code"] == "denied"


def test_several_tokens_cover_several_clusters_and_a_bad_one_only_drops_its_own(rig: Rig) -> None:
    rig.register("red")
    rig.register("blue")
    both = [rig.issue("bob", clusters=("red",)), rig.issue("bob", clusters=("blue",))]
    answer = rig.submit(token=None, tokens=both, command=["a"], satisfy_only=True)
    assert sorted(answer["clusters"]) == ["blue", "red"]
    answer = rig.submit(token=None, tokens=[both[0], "bad"], command=["a"], satisfy_only=True)
    assert answer["clusters"] == ["red"]


def test_a_bearer_header_is_a_token(rig: Rig) -> None:
    rig.register("red")
    rig.publish(
        codec.encode_json({"command": ["a"]}),
        headers={"authorization": f"Bearer {rig.token}"},
        reply_to=rig.replies.address,
        correlation_id="bearer",
    )
    assert rig.answer("bearer")["status"] == "assigned"


def test_a_revoked_subject_is_out_and_its_new_token_is_in(rig: Rig) -> None:
    rig.register("red")
    token = rig.issue("carol")
    assert rig.submit(token=token, command=["a"])["status"] == "assigned"
    rig.rpc.call({"op": "revoke", "sub": "carol"})
    refused = eventually(
        lambda: next((a for a in [rig.submit(token=token, command=["a"])] if a["status"] == "denied"), None), 5
    )
    assert "revoked" in refused["error"]
    time.sleep(2.1)  # a token of the same second as the revocation is revoked with it
    assert rig.submit(token=rig.issue("carol"), command=["a"])["status"] == "assigned"


def test_groups_are_looked_up_at_decision_time(rig: Rig) -> None:
    rig.register("red")
    rig.register("blue")
    token = rig.issue("dave", clusters=("@gpu",))
    assert rig.submit(token=token, command=["a"])["status"] == "no-match"
    rig.rpc.call({"op": "group-set", "group": "@gpu", "clusters": ["blue"]})
    eventually(lambda: rig.submit(token=token, command=["a"])["cluster"] == "blue", 60)
    assert rig.submit(command=["a"], clusters=["@gpu"])["cluster"] == "blue"
    with pytest.raises(NotFound, match="green"):
        rig.rpc.call({"op": "group-set", "group": "@gpu", "clusters": ["green"]})


# -- ids -----------------------------------------------------------------------------------------------------


def test_an_id_used_twice_is_answered_with_the_first_result(rig: Rig) -> None:
    rig.register("red")
    rig.register("blue")
    job_id = str(uuid.uuid4())
    first = rig.submit(id=job_id, command=["a"])
    consumer = rig.jobs_of(first["cluster"])
    [delivery] = consumer.take(1, 10)
    rig.event(first["cluster"], job_id, 1, "accepted")
    consumer.ack([delivery])
    rig.until(job_id, "accepted")
    second = rig.submit(id=job_id, command=["b"])
    assert second["status"] == "duplicate"
    assert (second["cluster"], second["attempt"], second["state"]) == (first["cluster"], 1, "accepted")
    assert consumer.take(1, 0.5) == []


def test_the_message_id_stands_in_for_an_id(rig: Rig) -> None:
    rig.register("red")
    job_id = str(uuid.uuid4())
    rig.publish(
        codec.encode_json({"token": rig.token, "command": ["a"]}),
        message_id=job_id,
        reply_to=rig.replies.address,
        correlation_id="m",
    )
    assert rig.answer("m")["id"] == job_id


def test_a_message_id_that_is_no_uuid_names_a_job_of_its_sender(rig: Rig) -> None:
    rig.register("red")
    answers = []
    for number, token in enumerate((rig.token, rig.token, rig.issue("bob"))):
        rig.publish(
            codec.encode_json({"token": token, "command": ["a"]}),
            message_id="job-7",
            reply_to=rig.replies.address,
            correlation_id=f"m{number}",
        )
        answers.append(rig.answer(f"m{number}")["id"])
    assert answers[0] == answers[1] != answers[2]
    assert uuid.UUID(answers[0]).version == 5


def test_msgpack_submissions_are_read_too(rig: Rig) -> None:
    rig.register("red")
    rig.publish(
        msgpack.packb({"token": rig.token, "command": ["a"]}),
        content_type="application/x-msgpack",
        reply_to=rig.replies.address,
        correlation_id="mp",
    )
    assert rig.answer("mp")["status"] == "assigned"


def test_without_reply_to_a_job_runs_all_the_same(rig: Rig) -> None:
    rig.register("red")
    job_id = str(uuid.uuid4())
    rig.publish(codec.encode_json({"token": rig.token, "id": job_id, "command": ["a"]}))
    assert rig.until(job_id, "assigned")["cluster"] == "red"


# -- hold, expiry, cancel --------------------------------------------------------------------------------------


def test_a_held_job_waits_for_its_cluster(rig: Rig) -> None:
    correlation = rig.send(command=["a"], hold=30)
    held = rig.answer(correlation)
    assert held["status"] == "held"
    rig.register("late")
    assigned = rig.answer(correlation)
    assert assigned["status"] == "assigned"
    assert assigned["cluster"] == "late"


def test_a_hold_that_runs_out_ends_without_a_match(rig: Rig) -> None:
    correlation = rig.send(command=["a"], hold=1)
    assert rig.answer(correlation)["status"] == "held"
    answers = [rig.answer(correlation)]
    while answers[-1]["status"] == "held":
        answers.append(rig.answer(correlation))
    assert answers[-1]["status"] == "no-match"
    rig.until(answers[-1]["id"], "no-match")


def test_a_job_past_its_expiry_is_recorded_and_dropped(rig: Rig) -> None:
    rig.register("red")
    answer = rig.submit(command=["a"], expires=time.time() - 5)
    assert answer["status"] == "expired"
    rig.until(answer["id"], "expired")


def test_cancel_before_the_job_is_known_stops_it(rig: Rig) -> None:
    rig.register("red")
    job_id = str(uuid.uuid4())
    assert rig.rpc.call({"op": "cancel", "ids": [job_id]})["jobs"] == [None]
    answer = rig.submit(id=job_id, command=["a"])
    assert answer["status"] == "cancelled"
    rig.until(job_id, "cancelled")
    assert rig.jobs_of("red").take(1, 0.5) == []


def test_cancel_of_a_held_job(rig: Rig) -> None:
    correlation = rig.send(command=["a"], hold=60)
    held = rig.answer(correlation)
    rig.rpc.call({"op": "cancel", "ids": [held["id"]]})
    rig.until(held["id"], "cancelled")


def test_cancel_of_an_assigned_job_reaches_the_agent_signed(rig: Rig) -> None:
    rig.register("red")
    answer = rig.submit(command=["a"])
    rig.rpc.call({"op": "cancel", "ids": [answer["id"]], "reason": "changed my mind"})
    [command] = rig.broker.consume(topology.agent_queue("red"), prefetch=10).take(1, 10)
    signing.check(rig.keys("red"), command.body, command.headers[signing.HEADER])
    sent = json.loads(command.body)
    assert (sent["id"], sent["attempt"], sent["reason"]) == (answer["id"], 1, "changed my mind")


def test_others_jobs_are_neither_seen_nor_cancelled(rig: Rig) -> None:
    rig.register("red")
    answer = rig.submit(command=["a"])
    bob_broker = rig.connect("bob")
    bob = Rpc(bob_broker, token=rig.issue("bob"), timeout=10)
    assert bob.call({"op": "status", "ids": [answer["id"]]})["jobs"] == [None]
    assert bob.call({"op": "jobs"})["jobs"] == []
    with pytest.raises(Denied):
        bob.call({"op": "cancel", "ids": [answer["id"]]})
    assert rig.job(answer["id"]) is not None
    bob_broker.close()


# -- the registry ----------------------------------------------------------------------------------------------


def test_registering_again_changes_and_a_stranger_is_refused(rig: Rig) -> None:
    first = rig.register("red", resources(nodes=1))
    again = rig.register("red", resources(nodes=6))
    assert first["created"]
    assert not again["created"]
    assert again["registration"] == first["registration"]
    assert rig.submit(command=["a"], nodes=6)["cluster"] == "red"
    with pytest.raises(Conflict, match="somebody else"):
        rig.register("red", resources(), identity="a-stranger")


def test_a_graph_with_an_edge_to_nothing_is_refused_by_name(rig: Rig) -> None:
    graph = {
        "graph": {
            "nodes": {"0": {"metadata": {"type": "cluster"}}, "1": {"metadata": {"type": "node"}}},
            "edges": [{"source": "0", "target": "7", "relation": "contains"}],
        }
    }
    with pytest.raises(InvalidInput, match="7"):
        rig.register("red", graph)


def test_deleting_a_cluster_leaves_nothing_and_its_jobs_go_elsewhere(rig: Rig) -> None:
    rig.register("red")
    rig.register("blue")
    answer = rig.submit(command=["a"], selection="first")
    assert answer["cluster"] == "blue"
    rig.rpc.call({"op": "delete", "cluster": "blue"})
    [delivery] = rig.jobs_of("red").take(1, 20)
    assert rig.open(delivery)["id"] == answer["id"]
    for queue in topology.cluster_queues("blue"):
        with pytest.raises(NotFound):
            rig.broker.stats(queue)
    assert [c["name"] for c in rig.rpc.call({"op": "clusters"})["clusters"]] == ["red"]
    with pytest.raises(NotFound):
        rig.rpc.call({"op": "delete", "cluster": "blue"})
    assert rig.register("blue")["created"]


def test_drained_clusters_get_nothing_until_resumed(rig: Rig) -> None:
    rig.register("red")
    rig.rpc.call({"op": "drain", "cluster": "red", "reason": "maintenance"})
    eventually(lambda: rig.submit(command=["a"])["status"] == "no-match", 60)
    refused = rig.submit(command=["a"])
    assert refused["reasons"]["red"] == {"code": "drained", "detail": "maintenance"}
    rig.rpc.call({"op": "resume", "cluster": "red"})
    eventually(lambda: rig.submit(command=["a"])["status"] == "assigned", 60)


def test_subsystems_are_added_and_removed(rig: Rig) -> None:
    graph = {
        "graph": {
            "nodes": {
                "0": {"metadata": {"type": "cluster"}},
                "1": {"metadata": {"type": "node"}},
                "2": {"metadata": {"type": "core"}},
            },
            "edges": [
                {"source": "0", "target": "1", "relation": "contains"},
                {"source": "1", "target": "2", "relation": "contains"},
            ],
        }
    }
    spack = {
        "graph": {
            "nodes": {"s0": {"metadata": {"type": "package", "version": "1.4.2"}}},
            "edges": [{"source": "1", "target": "s0", "relation": "contains"}],
        }
    }
    rig.register("red", graph)
    job = {"command": ["a"], "requires": [{"name": "spack", "field": "version", "min": "1.2", "max": "2"}]}
    assert rig.submit(**job)["status"] == "no-match"
    assert rig.rpc.call({"op": "subsystem-set", "cluster": "red", "name": "spack", "graph": spack})["subsystems"] == [
        "spack"
    ]
    eventually(lambda: rig.submit(**job)["status"] == "assigned", 60)
    rig.rpc.call({"op": "subsystem-remove", "cluster": "red", "name": "spack"})
    eventually(lambda: rig.submit(**job)["status"] == "no-match", 60)


def test_load_spreads_over_clusters_by_what_is_free(rig: Rig) -> None:
    rig.register("b", resources(nodes=10, cores=1))
    rig.register("c", resources(nodes=5, cores=1))
    rig.report("b", nodes_free=10, cores_free=10)
    rig.report("c", nodes_free=5, cores_free=5)
    placed = [rig.submit(command=["a"], nodes=1)["cluster"] for _ in range(15)]
    assert (placed.count("b"), placed.count("c")) == (10, 5)


def test_concurrent_registrations_and_updates_do_no_harm(rig: Rig) -> None:
    """The first rainbow's server died of these."""

    def one(number: int) -> None:
        name = f"c{number % 8}"
        rig.register(name, resources(nodes=1 + number))
        rig.report(name, nodes_free=1, cost=number)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(40)))
    clusters = rig.rpc.call({"op": "clusters"})["clusters"]
    assert [c["name"] for c in clusters] == [f"c{n}" for n in range(8)]
    assert rig.submit(command=["a"])["status"] == "assigned"


@pytest.mark.parametrize("name", ["%", "*", "a b", "", "x'; DROP TABLE clusters; --", "../up", "a.b", "#"])
def test_names_that_are_more_than_names_are_refused(rig: Rig, name: str) -> None:
    with pytest.raises(InvalidInput):
        rig.register(name)
    with pytest.raises((InvalidInput, Denied, NotFound)):
        rig.rpc.call({"op": "clusters", "name": name})


def test_a_job_whose_queue_vanished_is_placed_elsewhere(rig: Rig) -> None:
    """S13: no queue takes it, so it is not confirmed as dispatched but goes on to the next cluster."""
    rig.register("red")
    rig.register("blue")
    rig.broker.delete(list(topology.cluster_queues("blue")))
    answer = rig.submit(command=["a"], selection="first")
    assert answer["cluster"] == "blue"
    [delivery] = rig.jobs_of("red").take(1, 20)
    dispatch = rig.open(delivery)
    assert (dispatch["id"], dispatch["attempt"]) == (answer["id"], 2)
