"""Return addresses say nothing to the agents that carry them, and cannot be made or changed by them."""

from __future__ import annotations

import base64

import pytest

from rainbow.errors import BadSignature
from rainbow.security.tokens import KeyRing
from rainbow_workers import addresses

RING = KeyRing((("new", b"n" * 32), ("old", b"o" * 32)))
TO = addresses.Return("blue", "amq.rabbitmq.reply-to.g1h2A5JlcGx5QDEyMzQ1", "question-7", 1234.5)


def test_only_the_ring_reads_an_address() -> None:
    text = addresses.encrypt(RING, TO)
    assert addresses.decrypt(RING, text) == TO
    raw = base64.b64decode(text.partition(":")[2])
    for part in (TO.cluster, TO.reply_to, TO.correlation_id):
        assert part not in text
        assert part.encode() not in raw
    assert addresses.encrypt(RING, TO) != text, "two of the same address cannot be told to be the same"


def test_keys_rotate() -> None:
    text = addresses.encrypt(KeyRing((("old", b"o" * 32),)), TO)
    assert addresses.decrypt(RING, text) == TO
    with pytest.raises(BadSignature):
        addresses.decrypt(KeyRing((("old", b"x" * 32),)), text)


def test_what_was_changed_is_refused() -> None:
    kid, _, encoded = addresses.encrypt(RING, TO).partition(":")
    raw = base64.b64decode(encoded)
    changed = [raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :] for at in range(len(raw))]
    texts = [f"{kid}:{base64.b64encode(data).decode()}" for data in (*changed, raw[:-1], raw[:5], b"")]
    for text in (*texts, f"old:{encoded}", f"unknown:{encoded}", encoded, f"{kid}:%", ""):
        with pytest.raises(BadSignature):
            addresses.decrypt(RING, text)
