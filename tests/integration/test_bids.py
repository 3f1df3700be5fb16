"""Level 2: clusters are asked for bids, and the job goes where the bids say."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from agentrig import Agents, ended, shell
from rainbow import codec, topology
from rainbow.brokers.base import Consumer
from rainbow.client.rpc import Rpc
from rainbow.errors import Denied
from rainbow_workers.service import Service, ServiceOptions
from rig import Rig, eventually, resources

OPTIONS = ServiceOptions(retry_after=0.5)
ONE_NODE = resources(nodes=1, cores=4)


@pytest.fixture(params=["memory", "servers"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    name = uuid.uuid4().hex
    if request.param == "memory":
        made = Rig(f"memory://{name}", f"memory://{name}", options=OPTIONS)
    else:
        url, prefix = request.getfixturevalue("redis_url"), request.getfixturevalue("redis_prefix")
        made = Rig(request.getfixturevalue("amqp_url"), url, prefix=prefix, options=OPTIONS)
    with made as rig:
        yield rig


class Hand:
    """A cluster that is there, and answers by hand."""

    def __init__(self, rig: Rig, cluster: str, **values: Any) -> None:
        self.cluster = cluster
        self.rig = rig
        self.registration = rig.register(cluster, ONE_NODE)
        rig.report(cluster, nodes_free=1, cores_free=4, **values)
        eventually(lambda: heard_of(rig, cluster))
        self.rpc = Rpc(rig.connect(cluster), token=self.registration["secret"], timeout=20)
        self.queue: Consumer = rig.broker.consume(topology.agent_queue(cluster), prefetch=100)

    def asked(self, timeout: float = 10) -> dict[str, Any]:
        """The next question. A request to report again after a new epoch of the store is none."""
        while True:
            [delivery] = eventually(lambda: self.queue.take(1, 0.1), timeout)
            self.queue.ack([delivery])
            question = codec.decode(delivery.body)
            if question["command"] != "resync":
                return question

    def say(self, question: dict[str, Any], *bids: dict[str, Any], cluster: str | None = None) -> None:
        request = {"op": "answer", "cluster": cluster or self.cluster, "reply": question["reply"]}
        self.rpc.call({**request, "body": {"bids": list(bids)}})


def heard_of(rig: Rig, cluster: str) -> bool:
    """Does the scheduler know by now that this cluster has an agent?"""
    known = rig.service.world.clusters.get(cluster)
    return known is not None and known.state.heartbeat_at > 0


def bid(**options: Any) -> dict[str, Any]:
    return {"name": "bid", "options": {"within": 5.0, **options}}


def bids(answer: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = answer["selection"]["bids"]
    return found


def test_the_job_goes_where_it_starts_first(rig: Rig, agents: Agents) -> None:
    agents.start("blue", graph=ONE_NODE, options={"run_s": 60.0})
    first = rig.submit(jobspec=shell("true", cores=4), clusters=["blue"])
    rig.until(first["id"], "running")
    agents.start("red", graph=ONE_NODE, options={"run_s": 60.0})
    answer = rig.submit(jobspec=shell("true", cores=4), selection=bid())
    assert (answer["status"], answer["cluster"]) == ("assigned", "red")
    assert bids(answer)["red"] == {"will": True, "eta": 0.0}
    assert 40 < bids(answer)["blue"]["eta"] <= 60
    # Both are full now, and red's job ends later.
    rig.until(answer["id"], "running")
    assert rig.submit(jobspec=shell("true", cores=4), selection=bid())["cluster"] == "blue"


def test_cost_and_formula(rig: Rig, agents: Agents) -> None:
    slow: dict[str, Any] = {"options": {"run_s": 30.0}, "graph": ONE_NODE}
    agents.start("cheap", values={"cost_per_node_hour": 1}, **slow)
    agents.start("dear", values={"cost_per_node_hour": 9}, **slow)
    job = shell("true", cores=4, duration=1800)
    filling = rig.submit(jobspec=job, clusters=["cheap"])
    rig.until(filling["id"], "running")
    cheap = rig.submit(jobspec=job, selection=bid(by="cost"))
    assert (cheap["cluster"], bids(cheap)["cheap"]["cost"], bids(cheap)["dear"]["cost"]) == ("cheap", 0.5, 4.5)
    # The wait of up to 60 s there is worth less than 4 units of cost, or more, as the formula has it.
    assert rig.submit(jobspec=job, selection=bid(by="eta + 1000 * cost"))["cluster"] == "cheap"
    assert rig.submit(jobspec=job, selection=bid(by="eta + cost"))["cluster"] == "dear"


def test_no_is_taken_for_no_and_others_are_asked(rig: Rig, agents: Agents) -> None:
    agents.start("closed", graph=ONE_NODE, allowed_users=["bob"], values={"rank": 1})
    agents.start("open", graph=ONE_NODE, values={"rank": 2})
    answer = rig.submit(jobspec=shell("true"), selection=bid(ask=1, rank="rank"))
    assert answer["cluster"] == "open"
    assert answer["reasons"]["closed"]["detail"] == "it says no: user 'alice' may not run jobs here"
    refused = rig.submit(jobspec=shell("true"), clusters=["closed"], selection=bid())
    assert refused["status"] == "no-match"
    assert "may not run jobs here" in refused["reasons"]["closed"]["detail"]
    # Told who would say yes, the job still does not get past the bounded number of rounds.
    assert rig.submit(jobspec=shell("true"), selection=bid(ask=1, rank="rank", rounds=1))["status"] == "no-match"


def test_silence_costs_no_more_than_the_deadline(rig: Rig, agents: Agents) -> None:
    agents.start("blue", graph=ONE_NODE)
    Hand(rig, "mute")
    begun = time.monotonic()
    answer = rig.submit(jobspec=shell("true"), selection=bid(within=1.0))
    assert answer["cluster"] == "blue"
    assert 0.9 < time.monotonic() - begun < 5
    assert bids(answer)["mute"] == {"will": None, "detail": "no answer within 1 s"}
    only = rig.submit(jobspec=shell("true"), clusters=["mute"], selection=bid(within=0.5, rounds=1))
    assert (only["status"], only["cluster"]) == ("assigned", "mute")
    never = rig.submit(jobspec=shell("true"), clusters=["mute"], selection=bid(within=0.5, rounds=1, silent="never"))
    assert never["status"] == "no-match"


def test_nonsense_counts_as_silence_and_late_bids_change_nothing(rig: Rig) -> None:
    liar, honest = Hand(rig, "liar"), Hand(rig, "honest")
    sent = rig.send(jobspec=shell("true"), selection=bid(within=3.0))
    question = liar.asked()
    [ask] = question["asks"]
    assert "environment" not in ask["jobspec"]["attributes"]["system"]
    assert ask["user"] == "alice"
    liar.say(
        question, {"id": ask["id"], "will": True, "eta": -5}, {"no": "id"}, {"id": str(uuid.uuid4()), "will": True}
    )
    late = honest.asked()
    honest.say(late, {"id": ask["id"], "will": True, "eta": 100.0})
    answer = rig.answer(sent)
    assert answer["cluster"] == "honest"
    assert "makes no sense" in bids(answer)["liar"]["detail"]
    liar.say(question, {"id": ask["id"], "will": True, "eta": 0})
    time.sleep(0.3)
    record = rig.job(answer["id"])
    assert record is not None
    assert (record["state"], record["cluster"], record["attempt"]) == ("assigned", "honest", 1)


def test_another_users_job_under_the_id_of_one_in_bidding_takes_nothing(rig: Rig) -> None:
    blue = Hand(rig, "blue")
    waits = bid(within=8.0)
    job = str(uuid.uuid4())
    first = rig.send(jobspec=shell("true"), selection=waits, id=job)
    question = blue.asked()
    second = rig.send(jobspec=shell("false"), selection=waits, id=job, token=rig.issue("mallory"))
    time.sleep(0.5)
    blue.say(question, {"id": job, "will": True, "eta": 0.0})
    assert rig.answer(first)["cluster"] == "blue"
    while (answer := rig.answer(second))["status"] == "held":
        pass
    assert answer["status"] == "invalid"
    assert "taken" in answer["error"]
    record = rig.job(job)
    assert record is not None
    assert record["user"] == "alice"


def test_nobody_answers_for_another(rig: Rig) -> None:
    red, blue = Hand(rig, "red"), Hand(rig, "blue")
    sent = rig.send(jobspec=shell("true"), selection=bid(within=2.0, rounds=1))
    question = red.asked()
    [ask] = question["asks"]
    yes = {"id": ask["id"], "will": True, "eta": 0}
    with pytest.raises(Denied, match="was not asked this"):
        blue.say(question, yes)
    with pytest.raises(Denied, match="only the agent of cluster red"):
        blue.say(question, yes, cluster="red")
    for made in ("cmFpbmJvdy5qb2Jz", question["reply"][:-8] + "AAAAAAA=", "x:" + question["reply"].partition(":")[2]):
        with pytest.raises(Denied, match="not ours"):
            red.say({"reply": made}, yes)
    red.say(question, yes)
    assert rig.answer(sent)["cluster"] == "red"


def test_who_says_yes_and_then_refuses_loses_the_job(rig: Rig, agents: Agents) -> None:
    agents.start("liar", graph=ONE_NODE, options={"reject": "policy"}, values={"rank": 1})
    agents.start("other", graph=ONE_NODE, values={"rank": 2})
    answer = rig.submit(jobspec=shell("true"), selection=bid(by="rank"))
    assert answer["cluster"] == "liar"
    [record] = ended(rig, [answer["id"]]).values()
    assert (record["state"], record["cluster"], record["attempt"]) == ("completed", "other", 2)


def test_the_error_of_an_eta_is_measured(rig: Rig) -> None:
    hand = Hand(rig, "blue")
    sent = rig.send(jobspec=shell("true"), selection=bid())
    question = hand.asked()
    hand.say(question, {"id": question["asks"][0]["id"], "will": True, "eta": 10.0})
    answer = rig.answer(sent)
    promised = answer["selection"]["promised"]
    assert abs(promised - time.time() - 10) < 5
    rig.event("blue", answer["id"], 1, "accepted")
    rig.event("blue", answer["id"], 1, "running", at=promised + 25)
    rig.until(answer["id"], "running")

    def error() -> float | None:
        [listed] = rig.rpc.call({"op": "clusters", "name": "blue"})["clusters"]
        value: float | None = listed["state"].get("bid_error_s")
        return value

    assert eventually(error) == pytest.approx(25, abs=0.01)
    # A cluster cannot talk its own record away.
    hand.rpc.call(
        {
            "op": "state",
            "report": {
                "cluster": "blue",
                "values": {"bid_error_s": 0, "nodes_free": 1},
                "heartbeat": True,
                "registration": hand.registration["registration"],
            },
        }
    )
    assert error() == pytest.approx(25, abs=0.01)


def test_many_in_bidding_hold_nobody_up(rig: Rig, agents: Agents) -> None:
    agents.start("blue", graph=resources(nodes=100, cores=16), prefetch=500)
    Hand(rig, "mute")
    many = [rig.send(jobspec=shell("true"), selection=bid(within=4.0, rounds=1)) for _ in range(1000)]
    begun = time.monotonic()
    plain = rig.submit(jobspec=shell("true"), selection={"name": "first"}, clusters=["blue"])
    took = time.monotonic() - begun
    assert plain["status"] == "assigned"
    answers = [rig.answer(c, 60) for c in many]
    assert took < time.monotonic() - begun - 1, "it waited for those in bidding"
    assert {(a["status"], a["cluster"]) for a in answers} == {("assigned", "blue")}
    assert {r["state"] for r in ended(rig, [a["id"] for a in answers]).values()} == {"completed"}


def test_a_worker_that_dies_with_bids_out_loses_nothing(rig: Rig, agents: Agents) -> None:
    hand = Hand(rig, "blue")
    sent = [rig.send(jobspec=shell("true"), selection=bid(within=20.0, rounds=1)) for _ in range(20)]
    asked = 0
    while asked < 20:
        asked += len(hand.asked()["asks"])
    rig.worker_broker.close()  # as a kill looks to the broker: nothing is given back by hand
    for worker in rig.service.workers:
        worker.stop()
        worker.join(20)
    rig.worker_broker = rig.connect("workers again")
    rig.service = Service(rig.worker_broker, rig.store, rig.ring, rig.options)
    rig.service.start()
    asked = 0
    while asked < 20:
        question = hand.asked(30)
        hand.say(question, *({"id": a["id"], "will": True, "eta": 0} for a in question["asks"]))
        asked += len(question["asks"])
    answers = [rig.answer(c, 60) for c in sent]
    assert {(a["status"], a["cluster"], a["attempt"]) for a in answers} == {("assigned", "blue", 1)}
    assert len({a["id"] for a in answers}) == 20
