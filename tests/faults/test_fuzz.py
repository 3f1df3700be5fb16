"""Mutated messages against running programs, for a minute (`make fuzz` runs them for as long as asked)."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from faults.fuzz import fuzz
from faults.mutations import Mutator
from servers import Private, RabbitServer, RedisServer

pytestmark = pytest.mark.timeout(400)

SEED = 7


def test_a_seed_repeats_its_changes() -> None:
    document = {"a": [1, {"b": "c"}], "d": None}
    first, again, other = ([Mutator(random.Random(s)).document(document) for _ in range(20)] for s in (1, 1, 2))
    assert str(first) == str(again)
    assert str(first) != str(other)


def test_no_message_ends_a_program(
    private_rabbitmq: Private[RabbitServer], private_redis: Private[RedisServer], tmp_path: Path
) -> None:
    seed = int(os.environ.get("FUZZ_SEED") or SEED)
    seconds = float(os.environ.get("FUZZ_SECONDS") or 25.0)
    done = fuzz(tmp_path, private_rabbitmq, private_redis, seed=seed, seconds=seconds)
    assert not done.problems, f"FUZZ_SEED={seed} sends the same messages:\n" + "\n".join(done.problems)[:6000]
    assert sum(done.sent.values()) > 500
