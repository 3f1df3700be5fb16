"""Smaller parts of the agent: slots, identity, options, discovery, health, Flux's results."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from rainbow.errors import InvalidSettings, NotFound, RainbowError
from rainbow.jobspec.request import Demand
from rainbow_agents import health
from rainbow_agents.discovery import capacity, discover, subsystem_files
from rainbow_agents.executors.base import Capacity, SubmissionKey
from rainbow_agents.executors.flux.results import ended_of, found_of
from rainbow_agents.executors.options import read_options
from rainbow_agents.executors.slots import Slots
from rainbow_agents.identity import Identity, Registration
from rainbow_agents.threads import UNEXPECTED, Threads


class TestSlots:
    def test_strict_order_within_priority(self) -> None:
        slots = Slots(Capacity(nodes=1, cores=4))
        slots.add("a", Demand(0, 3, 0), 16)
        slots.add("big", Demand(0, 4, 0), 16)
        slots.add("small", Demand(0, 1, 0), 16)
        assert slots.ready() == ["a"]  # small waits behind big
        slots.done("a")
        assert slots.ready() == ["big"]
        slots.done("big")
        assert slots.ready() == ["small"]

    def test_priority_goes_first(self) -> None:
        slots = Slots(Capacity(nodes=1, cores=1))
        slots.add("low", Demand(0, 1, 0), 1)
        slots.add("high", Demand(0, 1, 0), 31)
        assert slots.ready() == ["high"]

    def test_nodes_are_whole_places(self) -> None:
        slots = Slots(Capacity(nodes=3, cores=6, gpus=3))
        slots.add("two", Demand(2, 4, 0), 16)
        assert slots.ready() == ["two"]
        usage = slots.usage()
        assert (usage.nodes_free, usage.cores_free, usage.gpus_free) == (1, 2, 3)
        assert slots.misfit(Demand(2, 6, 0)) is not None  # 3 cores a node: there are 2
        assert slots.misfit(Demand(4, 4, 0)) is not None
        assert slots.misfit(Demand(3, 6, 3)) is None

    def test_a_node_without_its_cores_is_had_as_a_whole(self) -> None:
        slots = Slots(Capacity(nodes=2, cores=8))
        slots.add("node", Demand(1, 0, 0), 16)
        slots.ready()
        assert slots.usage().cores_free == 4

    def test_cancelled_while_waiting(self) -> None:
        slots = Slots(Capacity(nodes=1, cores=1))
        slots.add("a", Demand(0, 1, 0), 16)
        slots.done("a")
        assert slots.ready() == []
        assert slots.usage().jobs_pending == 0

    def test_found_running_after_a_restart(self) -> None:
        slots = Slots(Capacity(nodes=1, cores=2))
        slots.occupy("a", Demand(0, 2, 0))
        slots.add("b", Demand(0, 1, 0), 16)
        assert slots.ready() == []
        slots.done("a")
        assert slots.ready() == ["b"]


class TestIdentity:
    def test_made_once(self, tmp_path: Path) -> None:
        assert Identity(tmp_path).name == Identity(tmp_path).name
        assert Identity(tmp_path / "other").name != Identity(tmp_path).name
        assert (tmp_path / "identity").stat().st_mode & 0o077 == 0

    def test_registration_is_kept_and_secret(self, tmp_path: Path) -> None:
        identity = Identity(tmp_path)
        assert identity.load() is None
        made = Registration("blue", "r1", "secret-token", {"k1": "00ff"})
        identity.save(made)
        assert Identity(tmp_path).load() == made
        assert made.signing == {"k1": b"\x00\xff"}
        assert "secret-token" not in repr(made)
        assert "00ff" not in repr(made)
        assert (tmp_path / "registration.json").stat().st_mode & 0o077 == 0

    @pytest.mark.parametrize(
        "text", ["", "{}", "[]", '{"cluster": 1}', '{"cluster":"b","registration":"r","secret":"s","keys":{}}']
    )
    def test_a_damaged_file_is_no_registration(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "registration.json").write_text(text)
        assert Identity(tmp_path).load() is None

    def test_a_copy_of_the_folder_is_refused(self, tmp_path: Path) -> None:
        import shutil

        first = Identity(tmp_path / "state")
        shutil.copytree(tmp_path / "state", tmp_path / "copy")
        with pytest.raises(InvalidSettings, match=r"is a copy: .* remove .*/copy/place"):
            Identity(tmp_path / "copy")
        assert Identity(tmp_path / "state").name == first.name
        (tmp_path / "copy" / "place").unlink()
        assert Identity(tmp_path / "copy").name == first.name

    def test_a_host_without_a_machine_id_finds_its_folder_again(self, tmp_path: Path, monkeypatch: Any) -> None:
        monkeypatch.setattr("rainbow_agents.identity._MACHINE_ID", tmp_path / "missing")
        first = Identity(tmp_path / "state")
        assert Identity(tmp_path / "state").name == first.name

    def test_owner_tells_nothing_of_the_identity(self, tmp_path: Path) -> None:
        identity = Identity(tmp_path)
        assert identity.owner not in identity.name


def test_options_take_numbers_of_either_kind() -> None:
    assert read_options("x", {"a": 1}, a=2.0, b=3) == {"a": 1.0, "b": 3}
    with pytest.raises(InvalidSettings, match="takes a, b"):
        read_options("x", {"c": 1}, a=2.0, b=3)


class TestDiscovery:
    def test_subsystem_files_by_name(self, tmp_path: Path) -> None:
        for name in ("io-subsystem.json", "spack.json", "notes.txt", ".hidden.json"):
            (tmp_path / name).write_text("{}")
        assert sorted(subsystem_files(tmp_path)) == ["io", "spack"]
        assert subsystem_files(None) == {}

    def test_the_same_name_twice_is_told(self, tmp_path: Path) -> None:
        for name in ("io-subsystem.json", "io.json"):
            (tmp_path / name).write_text("{}")
        with pytest.raises(InvalidSettings, match="both subsystem 'io'"):
            subsystem_files(tmp_path)

    def test_missing_folder_and_file_are_told(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidSettings, match="no folder"):
            subsystem_files(tmp_path / "nope")
        with pytest.raises(InvalidSettings, match="no graph file"):
            discover(tmp_path / "nope.json", None)

    def test_capacity_from_r(self, tmp_path: Path) -> None:
        lite = {"rank": "0-3", "children": {"core": "0-7", "gpu": "0-1"}}
        (tmp_path / "R.json").write_text(
            json.dumps({"version": 1, "execution": {"R_lite": [lite], "nodelist": ["n[0-3]"]}})
        )
        assert capacity(discover(tmp_path / "R.json", None)) == Capacity(4, 32, 8)


class TestHealth:
    def write(self, path: Path, **changes: Any) -> None:
        made: dict[str, Any] = {
            "cluster": "blue",
            "state": "running",
            "ok": True,
            "detail": "jobs are taken",
            "written_at": time.time(),
            "connected": True,
            "registered": True,
            "last_take": 0.0,
            "last_settle": 0.0,
            "last_report": time.time(),
            "events_waiting": 0,
        }
        health.HealthFile(path).write(health.Health(**{**made, **changes}))

    def test_well(self, tmp_path: Path) -> None:
        self.write(tmp_path / "h")
        assert health.read(tmp_path / "h").cluster == "blue"

    def test_not_there_stale_or_ill(self, tmp_path: Path) -> None:
        with pytest.raises(NotFound):
            health.read(tmp_path / "h")
        self.write(tmp_path / "h", written_at=time.time() - 100)
        with pytest.raises(RainbowError, match="hangs or is gone"):
            health.read(tmp_path / "h")
        self.write(tmp_path / "i", ok=False, detail="the broker cannot be reached")
        with pytest.raises(RainbowError, match="broker cannot be reached"):
            health.read(tmp_path / "i")

    @pytest.mark.parametrize(
        ("connected", "registered", "state", "age", "ok"),
        [
            (True, True, "running", 1, True),
            (True, True, "stand-by", 1e9, True),
            (False, True, "running", 1, False),
            (True, False, "running", 1, False),
            (True, True, "executor-down", 1, False),
            (True, True, "running", 100, False),
        ],
    )
    def test_progress_is_what_counts(self, connected: bool, registered: bool, state: str, age: float, ok: bool) -> None:
        got, detail = health.verdict(
            connected=connected, registered=registered, state=state, last_report=1e10 - age, now=1e10
        )
        assert (got, bool(detail)) == (ok, True)


class TestFluxResults:
    """How jobs ended on a real instance: wait status and exception to state and code."""

    MARK = SubmissionKey("a", 1, "c")

    def part(self, **facts: Any) -> dict[str, Any]:
        base = {
            "name": "f1",
            "held": False,
            "started": 1.0,
            "ended": 2.0,
            "status": 0,
            "exception": None,
            "output": None,
        }
        return {**base, **facts}

    @pytest.mark.parametrize(
        ("status", "exception", "state", "returncode"),
        [
            (0, None, "completed", 0),
            (768, None, "failed", 3),
            (35072, None, "failed", 137),
            (9, None, "failed", -9),
            (32512, "exec", "failed", 127),
            (36352, "timeout", "failed", 142),
            (36608, "cancel", "cancelled", 143),
            (None, "cancel", "cancelled", None),
            (None, "alloc", "failed", 1),
            (256, "exec", "failed", 1),
            (None, "exec", "failed", 1),
            (None, None, "failed", 1),
        ],
    )
    def test_ends(self, status: int | None, exception: str | None, state: str, returncode: int | None) -> None:
        given = {"type": exception, "note": "why"} if exception else None
        ended = ended_of(self.MARK, "f1", [self.part(status=status, exception=given)])
        assert (ended.state, ended.returncode) == (state, returncode)
        assert ended.code == (exception or (None if status is not None else "no-finish"))

    def test_the_first_part_that_failed_decides(self) -> None:
        dependency = {"type": "dependency", "note": "never satisfied"}
        parts = [self.part(), self.part(status=512), self.part(status=None, exception=dependency, ended=9.0)]
        ended = ended_of(self.MARK, "f1,f2,f3", parts)
        assert (ended.state, ended.returncode, ended.at) == ("failed", 2, 9.0)

    def test_of_an_incomplete_job_no_end_is_told(self) -> None:
        job = {"mark": self.MARK.as_dict(), "whole": False, "parts": [self.part()]}
        assert found_of(job, {}) is None
        found = found_of({**job, "parts": [self.part(ended=None, started=None, held=True)]}, {})
        assert found is not None
        assert found.phase == "held"


class TestThreads:
    def test_a_dead_thread_ends_all_with_a_code(self) -> None:
        threads = Threads()

        def die() -> None:
            raise ValueError("unheard of")

        threads.start("part", die)
        assert threads.stop.wait(10)
        assert threads.exit_code == UNEXPECTED
        threads.join(5)

    def test_an_error_of_ours_has_its_own_code(self) -> None:
        threads = Threads()

        def die() -> None:
            raise NotFound("nothing here")

        threads.start("part", die)
        assert threads.stop.wait(10)
        assert threads.exit_code == 5
        threads.join(5)
