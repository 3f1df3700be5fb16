"""Dead letters: the reason, the body as it was, and no secret in it."""

from __future__ import annotations

import json
from typing import Any

import msgpack
import pytest

from rainbow.brokers.base import Delivery, Message
from rainbow.security import tokens
from rainbow.security.tokens import KeyRing
from rainbow_workers import dead_letters

TOKEN = tokens.issue(KeyRing.generate(), sub="a", role="submit", ttl=60)
SECRET = "marker-of-a-secret"


def letter(body: bytes, content_type: str | None = None, detail: str = "why", **more: Any) -> Message:
    return dead_letters.letter(Delivery("q", body, content_type=content_type, **more), "invalid", detail)


@pytest.mark.parametrize("body", [b"", b"\x00\xff\xfe", "ä😀".encode(), b"{", bytes(range(256))])
def test_what_cannot_be_read_stays_as_it_was(body: bytes) -> None:
    assert letter(body).body == body


def test_it_says_why_and_from_where() -> None:
    made = letter(b"x", exchange="rainbow.submit", routing_key="k", message_id="m", headers={"authorization": TOKEN})
    assert made.headers is not None
    assert made.headers["rainbow-reason"] == made.routing_key == "invalid"
    assert (made.headers["rainbow-detail"], made.headers["rainbow-queue"], made.message_id) == ("why", "q", "m")
    assert TOKEN not in str(made)


@pytest.mark.parametrize(
    "body",
    [
        json.dumps({"token": SECRET, "command": ["a"]}).encode(),
        json.dumps({"tokens": [SECRET, SECRET]}).encode(),
        json.dumps({"secret": SECRET}).encode()[:-1],
        json.dumps({"tokens": [SECRET]}).encode()[:-1],
        b"token: " + SECRET.encode(),
        b"authorization=" + SECRET.encode() + b" x",
        json.dumps({"secret": SECRET}).encode("utf-8") + b"\xff",
        b"[" + json.dumps({"token": SECRET}).encode(),
        TOKEN.encode(),
        b"Authorization: Bearer " + TOKEN.encode(),
        b"amqp://user:" + SECRET.encode() + b"@host",
        json.dumps({"Token": SECRET, "TOKENS": [SECRET]}).encode(),
        json.dumps({"data": {"list": [{"token": SECRET}]}}).encode(),
        json.dumps({"password": SECRET}).encode(),
        json.dumps({"name": TOKEN, TOKEN: 1, "note": f"amqp://u:{SECRET}@h"}).encode(),
        json.dumps({"secret": SECRET, "graph": "x" * (300 << 10)}).encode(),
        b'{"a": "' + b"x" * ((256 << 10) - 30) + b'", "token": "' + SECRET.encode(),
    ],
)
def test_no_secret_in_json_or_text(body: bytes) -> None:
    made = letter(body).body
    assert SECRET.encode() not in made
    assert SECRET.encode()[:8] not in made
    assert TOKEN.encode() not in made
    assert len(made) <= 256 << 10


@pytest.mark.parametrize("cut", [0, 1])
@pytest.mark.parametrize("size", [10, 40, 300 << 10])
def test_no_secret_in_msgpack(size: int, cut: int) -> None:
    body = msgpack.packb({"secret": SECRET * 3, "token": SECRET, "summary": b"\x01" * size})
    made = letter(body[: len(body) - cut], "application/x-msgpack").body
    assert SECRET.encode() not in made


def test_what_is_the_jobs_own_stays() -> None:
    """It is needed to send the job once more."""
    own = {"jobspec": {"token": "x"}, "environment": {"SECRET": "x"}, "command": ["--token=x", "amqp://u:x@h"]}
    made = letter(json.dumps({**own, "token": SECRET, "nodes": 0}).encode()).body
    assert json.loads(made) == {**own, "token": "***", "nodes": 0}


@pytest.mark.parametrize(
    "body",
    [
        b"token:" + b" " * 500_000 + b'"',
        b"token:[ " * 60_000,
        b"-eyJaaaaaaaa" * 45_000,
        b"_eyJ" * 130_000,
        b"a://b:" * 90_000,
        b"a." * 250_000,
    ],
    ids=lambda body: body[:12].decode(),
)
@pytest.mark.timeout(30)
def test_no_text_takes_long(body: bytes) -> None:
    """What looks like the beginning of a secret again and again costs no more than its length."""
    assert letter(body).body
    assert letter(json.dumps({"x": body.decode()}).encode()).body


def test_the_detail_is_cut_and_clean() -> None:
    made = letter(b"x", detail=f"no: {TOKEN} at amqp://u:{SECRET}@h " + "y" * 5000)
    assert made.headers is not None
    assert SECRET not in made.headers["rainbow-detail"]
    assert TOKEN not in made.headers["rainbow-detail"]
    assert len(made.headers["rainbow-detail"]) <= 1000


@pytest.mark.parametrize("field", ["jobspec", "clusters", "command", "environment", "name"])
def test_a_token_in_any_field_is_taken_out(field: str) -> None:
    """By its form: also from what is a job's own, where another's token stays."""
    foreign = "eyJhbGciOiJIUzI1NiJ9.eyJhdWQiOiJvdGhlciJ9.c2lnbmF0dXJlLW9mLWFub3RoZXI"
    value: Any = {"a": [f"x {TOKEN} y"]} if field in ("jobspec", "environment") else [TOKEN]
    made = letter(json.dumps({field: value, "graph": {"note": foreign}}).encode())
    assert TOKEN.encode() not in made.body
    assert foreign.encode() in made.body
