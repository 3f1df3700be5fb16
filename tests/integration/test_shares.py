"""Accounts, weights and limits: what tokens may charge, and what an administrator sets while rainbow runs."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rainbow.errors import InvalidInput, NotFound, RainbowError
from rainbow.jobspec import simple
from rainbow.models.shares import ShareTerms
from rainbow_workers.scheduling.share_terms import SharePolicy
from rainbow_workers.scheduling.waiting import WaitingPolicy
from rainbow_workers.service import ServiceOptions
from rig import Rig, eventually


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    name = uuid.uuid4().hex
    shares = SharePolicy({"carol": ShareTerms(weight=5)}, {"physics": ShareTerms(weight=3)})
    options = ServiceOptions(waiting=WaitingPolicy(shares=shares), audit=tmp_path / "audit.log")
    with Rig(f"memory://{name}", f"memory://{name}", options=options) as rig:
        rig.register("blue")
        # Once a second is looked how much there is to be shared.
        eventually(lambda: rig.service._fair_share._totals.cores)
        yield rig


def denied(rig: Rig, **fields: Any) -> tuple[str, str]:
    answer = rig.submit(**{"command": ["true"], **fields})
    assert "\n" not in answer["error"]
    return answer["status"], answer["error"]


@pytest.mark.parametrize(
    ("accounts", "fields", "charged"),
    [
        ((), {}, "default"),
        ((), {"account": "default"}, "default"),
        (("physics",), {}, "physics"),
        (("physics", "biology"), {}, "physics"),
        (("physics", "biology"), {"account": "biology"}, "biology"),
        (("physics", "biology"), {"bank": "biology"}, "biology"),
        # A bank that the token does not cover is the cluster's business alone.
        (("physics",), {"bank": "chemistry"}, "physics"),
        ((), {"bank": "physics"}, "default"),
    ],
)
def test_a_job_is_charged_to_what_it_names_or_to_the_first_account_of_its_token(
    rig: Rig, accounts: tuple[str, ...], fields: dict[str, str], charged: str
) -> None:
    bank = fields.pop("bank", None)
    job: dict[str, Any] = {"command": ["true"]}
    if bank is not None:
        document = simple(["true"])
        document["attributes"]["system"]["bank"] = bank
        job = {"jobspec": document}
    answer = rig.submit(token=rig.issue("alice", accounts=accounts), **job, **fields)
    assert answer["status"] == "assigned", answer
    assert set(rig.service._fair_share.usage().users) == {(charged, "alice")}


def test_an_account_that_the_token_does_not_cover_is_refused(rig: Rig) -> None:
    one, none = rig.issue("alice", accounts=("physics", "biology")), rig.issue("bob")
    assert denied(rig, token=one, account="chemistry") == (
        "denied",
        "the token does not cover account 'chemistry': it may charge physics, biology",
    )
    assert denied(rig, token=none, account="physics")[0] == "denied"
    assert denied(rig, token=one, account="no account") == ("invalid", denied(rig, token=one, account="no account")[1])
    assert rig.service._fair_share.usage().users == {}


def test_an_administrator_charges_any_account_that_is_known(rig: Rig) -> None:
    root = rig.issue("root", "admin")
    status, error = denied(rig, token=root, account="phisics")
    assert status == "invalid"
    assert "no account 'phisics'" in error
    assert rig.submit(token=root, account="physics", command=["true"])["status"] == "assigned"


def limited(rig: Rig, level: str, name: str, **terms: float) -> None:
    rig.rpc.call({"op": "share-set", level: name, "terms": terms})
    rig.service._fair_share.sync(at_once=True)


def counts(rig: Rig, token: str | None = None) -> tuple[dict[tuple[str, str], tuple[int, int]], tuple[int, int]]:
    found = rig.rpc.call({"op": "queue", **({"token": token} if token else {})})
    users = {(row["account"], row["user"]): (row["waiting"], row["running"]) for row in found["users"]}
    return users, (found["totals"]["waiting"], found["totals"]["running"])


@pytest.mark.parametrize(("level", "name"), [("user", "alice"), ("account", "physics")])
def test_beyond_the_running_jobs_of_a_user_or_account_others_wait_until_one_ends(
    rig: Rig, level: str, name: str
) -> None:
    limited(rig, level, name, max_running=2)
    token = rig.issue("alice", accounts=("physics",))
    jobs = [str(uuid.uuid4()) for _ in range(5)]
    answers = [rig.submit(id=job, token=token, command=["true"]) for job in jobs]
    assert [a["status"] for a in answers] == ["assigned", "assigned", "held", "held", "held"]
    assert rig.submit(token=rig.issue("bob"), command=["true"])["status"] == "assigned"
    detail = rig.until(jobs[2], "held")["detail"]
    assert detail == f"{level} {name!r} has as many jobs on clusters as it may (2)"
    assert answers[2]["clusters"] == ["blue"]
    assert rig.submit(token=token, command=["true"], nodes=1000)["status"] == "no-match"
    assert counts(rig) == ({("physics", "alice"): (3, 2), ("default", "bob"): (0, 1)}, (3, 3))
    assert counts(rig, rig.issue("bob")) == ({("default", "bob"): (0, 1)}, (3, 3))
    rig.event("blue", jobs[0], 1, "running")
    rig.event("blue", jobs[0], 1, "completed")
    rig.until(jobs[2], "assigned")
    assert counts(rig)[0]["physics", "alice"] == (2, 2)
    waits = rig.rpc.call({"op": "queue", "id": jobs[4]})["job"]
    assert (waits["own_before"], waits["users_before"]) == (1, 0)
    assert rig.rpc.call({"op": "queue", "id": jobs[0]})["job"] is None
    limited(rig, level, name, max_running=10)
    for job in jobs[3:]:
        rig.until(job, "assigned")


def test_beyond_the_waiting_jobs_of_a_user_submissions_are_refused_and_nothing_is_kept(rig: Rig) -> None:
    limited(rig, "user", "alice", max_running=0, max_waiting=2)
    jobs = [str(uuid.uuid4()) for _ in range(3)]
    for job in jobs[:2]:
        assert rig.submit(id=job, command=["true"])["status"] == "held"
    eventually(lambda: rig.service._limits._waiting.get(("user", "alice")) == 2)
    refused = rig.submit(id=jobs[2], command=["true"])
    assert (refused["status"], refused["code"]) == ("denied", "too-many-requests")
    assert refused["error"] == "user 'alice' has as many jobs waiting as it may (2): submit it again later"
    assert rig.job(jobs[2]) is None
    # Who asks again about a job that is there is told of it.
    assert rig.submit(id=jobs[0], command=["true"])["status"] != "denied"
    limited(rig, "user", "alice", max_running=10)
    assert rig.submit(id=jobs[2], command=["true"])["status"] in ("held", "assigned")
    rig.until(jobs[2], "assigned")


def test_beyond_the_running_jobs_submissions_are_refused_where_the_site_chose_so() -> None:
    """`waiting.over_limit: refuse`."""
    name = uuid.uuid4().hex
    shares = SharePolicy({"alice": ShareTerms(max_running=1)}, {})
    options = ServiceOptions(waiting=WaitingPolicy(shares=shares, refuse_running=True))
    with Rig(f"memory://{name}", f"memory://{name}", options=options) as rig:
        rig.register("blue")
        first = rig.submit(command=["true"])
        assert first["status"] == "assigned"
        job = str(uuid.uuid4())
        refused = rig.submit(id=job, command=["true"])
        assert (refused["status"], refused["code"]) == ("denied", "too-many-requests")
        assert refused["error"] == "user 'alice' has as many jobs on clusters as it may (1): submit it again later"
        assert rig.job(job) is None
        assert rig.submit(token=rig.issue("bob"), command=["true"])["status"] == "assigned"
        for state in ("running", "completed"):
            rig.event("blue", first["id"], 1, state)
        rig.until(first["id"], "completed")
        eventually(lambda: rig.submit(id=job, command=["true"])["status"] == "assigned")


def test_submissions_that_come_too_fast_are_refused(rig: Rig) -> None:
    limited(rig, "account", "default", max_rate=0.001)
    assert rig.submit(command=["true"])["status"] == "assigned"
    refused = rig.submit(command=["true"])
    assert (refused["status"], refused["code"]) == ("denied", "too-many-requests")
    assert "0.001 jobs a second" in refused["error"]
    assert rig.submit(token=rig.issue("bob", accounts=("physics",)), command=["true"])["status"] == "assigned"


def rows(rig: Rig, token: str | None = None) -> dict[tuple[str | None, str | None], dict[str, Any]]:
    found = rig.rpc.call({"op": "shares", **({"token": token} if token else {})})
    assert found["half_life"] == 3600.0
    return {(row["account"], row["user"]): row for row in found["shares"]}


def test_weights_are_set_while_rainbow_runs_and_everybody_follows(rig: Rig, tmp_path: Path) -> None:
    rig.submit(token=rig.issue("alice", accounts=("physics",)), command=["true"])
    rig.submit(token=rig.issue("bob", accounts=("biology",)), command=["true"])
    found = rows(rig)
    assert (found["physics", None]["weight"], found["physics", None]["set_by"]) == (3.0, "settings")
    assert found["physics", "alice"]["share"] == pytest.approx(0.75)
    assert found["biology", "bob"]["usage"] == pytest.approx(0.5)
    assert (found[None, "carol"]["weight"], found[None, "carol"]["share"]) == (5.0, None)
    rig.rpc.call({"op": "share-set", "account": "biology", "terms": {"weight": 6, "max_running": 10}})
    rig.rpc.call({"op": "share-set", "account": "biology", "terms": {"max_rate": 2.5}})
    biology = rows(rig)["biology", None]
    assert (biology["weight"], biology["max_running"], biology["max_rate"]) == (6.0, 10, 2.5)
    assert biology["share"] == pytest.approx(6 / 9)
    rig.service.stop()
    rig.restart()
    eventually(lambda: rig.service._fair_share.table.weight("account", "biology") == 6.0)
    rig.rpc.call({"op": "share-set", "account": "biology", "unset": True})
    assert rows(rig)["biology", None]["set_by"] is None
    written = [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]
    noted = [(w["object"], w["terms"]) for w in written if w["action"] == "share-set"]
    assert noted[:2] == [("biology", {"weight": 6.0, "max_running": 10}), ("biology", {"max_rate": 2.5})]


def test_a_submitter_sees_its_own_share_alone(rig: Rig) -> None:
    for user in ("alice", "bob"):
        rig.submit(token=rig.issue(user), command=["true"])
    assert set(rows(rig, rig.issue("alice"))) == {("default", "alice")}
    with pytest.raises(RainbowError) as caught:
        rig.rpc.call({"op": "share-set", "user": "alice", "terms": {"weight": 2}, "token": rig.issue("alice")})
    assert caught.value.code == "denied"


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        ({"user": "alice", "terms": {"weight": 0}}, InvalidInput),
        ({"user": "alice", "terms": {"weight": -1}}, InvalidInput),
        ({"user": "alice", "terms": {"weight": "many"}}, InvalidInput),
        ({"user": "alice", "terms": {"weight": True}}, InvalidInput),
        ({"user": "alice", "terms": {"max_running": -1}}, InvalidInput),
        ({"user": "alice", "terms": {"colour": 1}}, InvalidInput),
        ({"user": "alice", "terms": {}}, InvalidInput),
        ({"account": "no account", "terms": {"weight": 1}}, InvalidInput),
        ({"user": "alice", "account": "physics", "terms": {"weight": 1}}, InvalidInput),
        ({"terms": {"weight": 1}}, InvalidInput),
        ({"user": "alice", "unset": True}, NotFound),
        ({"account": "physics", "unset": True}, NotFound),
    ],
)
def test_wrong_terms_are_one_line_and_nothing_is_kept(
    rig: Rig, request_: dict[str, Any], error: type[RainbowError]
) -> None:
    with pytest.raises(error) as caught:
        rig.rpc.call({"op": "share-set", **request_})
    assert "\n" not in str(caught.value)
    assert rig.store.shares.terms() == {}
