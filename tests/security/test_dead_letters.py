"""Dead letters: only what the workers signed says where it came from, and nobody's token leaves unasked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rainbow import topology
from rainbow.brokers.base import Delivery, Message
from rainbow.client.dead_letters import Letter
from rainbow.errors import InvalidInput
from rainbow.security import signing
from rainbow.security.tokens import KeyRing
from rig import Rig, eventually

RING = KeyRing.generate()
EVERYWHERE = [e.name for e in topology.core().exchanges]
#: What a sender writes who wants an operator to send a message elsewhere, with the operator's token in it.
FORGED = {"rainbow-reason": "invalid", "rainbow-queue": "rainbow.scheduler", "rainbow-time": 1, "rainbow-bytes": 9}


def lying(exchange: str, died_in: str = topology.SUBMIT, **headers: Any) -> Letter:
    """A message put aside by RabbitMQ, whose sender wrote headers as the workers do."""
    death = {"reason": "expired", "queue": "rainbow.scheduler", "exchange": died_in, "routing-keys": ["submit"]}
    said = {**FORGED, "rainbow-exchange": exchange, "rainbow-routing-key": "blue", **headers, "x-death": [death]}
    return Letter(
        Delivery(topology.DEAD_QUEUE, json.dumps({"token": "***", "op": "jobs"}).encode(), headers=said), RING
    )


@pytest.mark.parametrize("exchange", EVERYWHERE)
def test_headers_of_a_sender_never_choose_where_a_replay_goes(exchange: str) -> None:
    letter = lying(exchange, CC=["blue"], BCC=["red"])
    again = letter.replay("the operator's")
    assert (again.exchange, again.routing_key) == (topology.SUBMIT, "submit")
    assert again.headers == {"rainbow-replayed": 1}


@pytest.mark.parametrize("exchange", [e for e in EVERYWHERE if e != topology.SUBMIT])
def test_an_unsigned_letter_is_replayed_to_submissions_only(exchange: str) -> None:
    with pytest.raises(InvalidInput, match="submit only"):
        lying(topology.SUBMIT, exchange).replay()


@pytest.mark.parametrize("exchange", EVERYWHERE)
def test_no_token_goes_anywhere_but_into_a_submission(exchange: str) -> None:
    """Also where a worker signed the letter: with an administrator's token, a request does what its sender wrote."""
    headers: dict[str, Any] = {**FORGED, "rainbow-exchange": exchange, "rainbow-routing-key": "k"}
    body = json.dumps({"token": "***", "op": "revoke", "sub": "alice"}).encode()
    headers[signing.HEADER] = signing.sign(signing.letter_keys(RING), signing.letter_text(headers, body))
    letter = Letter(Delivery(topology.DEAD_QUEUE, body, headers=headers), RING)
    assert letter.signed
    with pytest.raises(InvalidInput, match="lost its token"):
        letter.replay()
    if exchange == topology.SUBMIT:
        assert b"mine" in letter.replay("mine").body
    else:
        with pytest.raises(InvalidInput, match="no submission"):
            letter.replay("mine")


@pytest.mark.parametrize("spoilt", [*FORGED, "rainbow-exchange", "rainbow-routing-key"])
def test_a_signature_covers_all_that_is_said_of_the_origin(spoilt: str) -> None:
    headers: dict[str, Any] = {**FORGED, "rainbow-exchange": topology.JOBS, "rainbow-routing-key": "k"}
    headers[signing.HEADER] = signing.sign(signing.letter_keys(RING), signing.letter_text(headers, b"x"))
    assert Letter(Delivery(topology.DEAD_QUEUE, b"x", headers=headers), RING).signed
    for changed, body in (({**headers, spoilt: "other"}, b"x"), (headers, b"y")):
        letter = Letter(Delivery(topology.DEAD_QUEUE, body, headers=changed), RING)
        assert not letter.signed
        assert letter.exchange == ""
    assert not Letter(Delivery(topology.DEAD_QUEUE, b"x", headers=headers), KeyRing.generate()).signed


def test_the_workers_sign_each_dead_letter(rig: Rig) -> None:
    """Of a submission, of a request, and of an event."""
    rig.publish(b"{nonsense")
    for exchange, key in ((topology.CONTROL, "jobs"), (topology.EVENTS, "job.blue.running")):
        rig.broker.publish([Message(exchange, key, b"{nonsense")]).check(10)
    found: list[Delivery] = []

    def all_there() -> bool:
        found.extend(rig.dead_letters())
        return len(found) == 3

    eventually(all_there)
    letters = [Letter(delivery, rig.ring) for delivery in found]
    assert all(letter.signed for letter in letters)
    assert {letter.exchange for letter in letters} == {topology.SUBMIT, topology.CONTROL, topology.EVENTS}
