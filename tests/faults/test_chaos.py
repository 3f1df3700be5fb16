"""Random faults, a few seconds of them (`make chaos` runs them for as long as asked), and that they can be repeated."""

from __future__ import annotations

import os
import uuid
from itertools import islice
from pathlib import Path

import pytest

from faults import chaos_judge
from faults.chaos import faults, kinds, run
from faults.chaos_judge import Tap, judge, shares
from faults.chaos_load import Load
from faults.chaos_servers import Shape
from faults.chaos_yard import Yard, workers
from rainbow import codec, topology
from rainbow.brokers import ConnectOptions, connect
from rainbow.brokers.base import Message
from servers import Private, RabbitServer, RedisServer, wait_until

pytestmark = pytest.mark.timeout(600)

#: The same faults in each run of the tests, of nearly all kinds in half a minute; `make chaos` takes new ones.
SEED = 243


def test_the_same_seed_brings_the_same_faults() -> None:
    first, again, other = ([str(f) for f in islice(faults(seed), 200)] for seed in (5, 5, 6))
    assert first == again
    assert first != other


@pytest.mark.parametrize("shape", [Shape(), Shape(3, 3, 3, sentinel=True)])
def test_all_kinds_come_up(shape: Shape) -> None:
    found = list(islice(faults(1, shape=shape), 3000))
    assert {f.what for f in found} == set(kinds(shape))
    assert set(workers(shape)) <= {f.where for f in found}


def test_a_rainbow_under_random_faults(
    private_rabbitmq: Private[RabbitServer], private_redis: Private[RedisServer], tmp_path: Path
) -> None:
    """All invariants at once: none lost, none twice, one end each, and everything comes back by itself."""
    seed = int(os.environ.get("CHAOS_SEED") or SEED)
    seconds = float(os.environ.get("CHAOS_SECONDS") or 30.0)
    verdict = run(tmp_path, private_rabbitmq, private_redis, seed=seed, seconds=seconds)
    assert not verdict.problems, f"CHAOS_SEED={seed} shows the same faults:\n" + "\n".join(verdict.problems[:20])
    assert verdict.facts["ran"] > 10


@pytest.mark.slow
def test_the_judge_sees_what_is_wrong(
    private_rabbitmq: Private[RabbitServer],
    private_redis: Private[RedisServer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run without faults is found good; then one thing after the other is spoilt, and each is found."""
    yard = Yard(tmp_path, private_rabbitmq, private_redis)
    try:
        yard.start()
        tap, load = Tap(yard), Load(yard, 1)
        load.start()
        wait_until(lambda: len(load.jobs) >= 30 and load.arrays, 60, what="jobs are confirmed")
        load.stop()
        good = judge(yard, load, tap, lambda _: None)
        assert good.problems + load.problems == []
        assert good.facts["ran"] > 10
        assert load.arrays
        assert list(shares(yard)) == []
        with yard.client() as admin:
            admin.set_share("frank", terms={"weight": 0.01})
        assert "of two users with equal weights, the second had" in "".join(shares(yard, ("erin", "frank")))

        elements = {element for elements in load.arrays.values() for element in elements}
        ended = [job for job, code in load.jobs.items() if not code and job not in load.cancelled | elements]
        twice, wrong, unsaid, torn = ended[:4]
        lost = str(uuid.uuid4())
        lines = (tmp_path / "bodies").read_text().splitlines()
        lines = [line for line in lines if not line.startswith(f"end {torn} ")] + [f"start {twice} 2"]
        (tmp_path / "bodies").write_text("\n".join(lines) + "\n")
        load.jobs |= {wrong: 3, lost: 0}
        program = yard.programs["recorder"].process
        assert program is not None
        program.kill()
        program.wait()
        broker = connect(ConnectOptions(yard.rabbit.server.vhost_url(yard.vhost)))
        told = [{"id": unsaid, "attempt": 1, "cluster": "blue", "state": state} for state in ("completed", "failed")]
        key = topology.event_key("blue", "failed")
        broker.publish([Message(topology.EVENTS, key, codec.encode_json({"version": 1, "events": told}))]).check(10)
        broker.publish([Message(topology.SUBMIT, "submit", b"no job")]).check(10)
        broker.close()
        monkeypatch.setattr(chaos_judge, "SETTLE", 5.0)
        problems = judge(yard, load, tap, lambda _: None).problems
        for job, words in {
            twice: "ran 2 times",
            wrong: "ended wrongly",
            unsaid: "more than one end",
            torn: "its body did not end so",
            lost: "not over",
        }.items():
            assert any(words in problem and job in problem for problem in problems), (words, problems)
        assert any("recorder ended by itself" in problem for problem in problems)
        assert any("dead letter" in problem for problem in problems)
        others = load.jobs.keys() - {twice, wrong, unsaid, torn, lost}
        assert not any(job in problem for job in others for problem in problems)
        tap.close()
    finally:
        yard.close()
