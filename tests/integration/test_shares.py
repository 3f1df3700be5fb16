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
