"""Random faults, a few seconds of them (`make chaos` runs them for as long as asked), and that they can be repeated."""

from __future__ import annotations

import os
import random
from itertools import islice
from pathlib import Path

import pytest

from faults.chaos import KINDS, faults, run
from servers import Private, RabbitServer, RedisServer

pytestmark = pytest.mark.timeout(600)


def test_the_same_seed_brings_the_same_faults() -> None:
    first, again, other = ([str(f) for f in islice(faults(seed), 200)] for seed in (5, 5, 6))
    assert first == again
    assert first != other


def test_all_kinds_come_up() -> None:
    assert {f.what for f in islice(faults(1), 2000)} == set(KINDS)


def test_a_rainbow_under_random_faults(
    private_rabbitmq: Private[RabbitServer], private_redis: Private[RedisServer], tmp_path: Path
) -> None:
    """All invariants at once: none lost, none twice, one end each, and everything comes back by itself."""
    seed = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(1 << 31))
    seconds = float(os.environ.get("CHAOS_SECONDS") or 25.0)
    verdict = run(tmp_path, private_rabbitmq, private_redis, seed=seed, seconds=seconds)
    assert not verdict.problems, f"CHAOS_SEED={seed} shows the same faults:\n" + "\n".join(verdict.problems[:20])
    assert verdict.facts["ran"] > 10
