from __future__ import annotations

import random
import threading
import time
from typing import Any

import pytest

from rainbow.backoff import Backoff


def test_delays_grow_within_their_jitter_up_to_the_most() -> None:
    backoff = Backoff(first=1.0, most=10.0, rng=random.Random(1))
    for whole in (1, 2, 4, 8, 10, 10):
        assert whole / 2 <= backoff.next() <= whole


def test_reset_starts_over() -> None:
    backoff = Backoff(first=1.0, most=10.0)
    for _ in range(5):
        backoff.next()
    backoff.reset()
    assert backoff.next() <= 1.0


def test_two_do_not_keep_step() -> None:
    one, two = Backoff(rng=random.Random(1)), Backoff(rng=random.Random(2))
    assert [one.next() for _ in range(5)] != [two.next() for _ in range(5)]


def test_a_wait_ends_when_asked_to_stop() -> None:
    stop = threading.Event()
    stop.set()
    began = time.monotonic()
    assert Backoff(first=30.0, most=30.0).wait(stop)
    assert time.monotonic() - began < 10
    assert not Backoff(first=0.001).wait(threading.Event())


@pytest.mark.parametrize("bad", [{"first": 0}, {"first": 5, "most": 1}, {"factor": 0.5}])
def test_impossible_settings(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="need 0 < first"):
        Backoff(**bad)
