"""The two Flux executors on a real instance: the contract, and the traps of Flux that are theirs to avoid."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fluxrig import end, make_flux
from rainbow.jobspec.flux.v1 import FluxJob
from rainbow.jobspec.request import Demand
from rainbow_agents.executors.base import Held, SubmissionKey, Work
from rainbow_agents.executors.testing import Rig, RunningExecutorContract, v1


class TestFlux(RunningExecutorContract):
    name = "flux"

    @pytest.fixture
    def rig(self, flux_uri: str, flux_bindings: None, tmp_path: Path) -> Iterator[Rig]:
        rig = make_flux(self.name, tmp_path)
        yield rig
        end(rig)

    def test_a_missing_folder_is_left_to_flux_where_told_so(self, rig: Rig, tmp_path: Path) -> None:
        other = make_flux(self.name, tmp_path, check_cwd=False)
        work = other.work("true", cwd=str(tmp_path / "elsewhere"))
        held = other.submit(work)
        other.executor.cancel([held], "enough")
        assert other.wait_for("Ended", work.mark).state == "cancelled"
        other.executor.close()

    def test_output_in_flux_is_bounded(self, rig: Rig, flux_instance: Any) -> None:
        ended = rig.run("head -c 1000000 /dev/zero | tr '\\0' x | fold -w 1000")
        kept = flux_instance.command("job", "attach", ended.handle)
        assert len(kept) < 200_000

    def test_mark_name_and_limits_are_in_the_jobspec(self, rig: Rig, flux_instance: Any) -> None:
        import json

        work = rig.work("true", duration=77.0)
        held = rig.submit(work)
        spec = json.loads(flux_instance.command("job", "info", held.handle, "jobspec"))
        assert spec["attributes"]["user"]["rainbow"]["claim"] == work.mark.claim
        assert spec["attributes"]["system"]["job"]["name"] == "contract"
        assert spec["attributes"]["system"]["duration"] == 77.0
        rig.executor.cancel([held], "seen")

    def test_a_user_of_flux_cancels_our_job(self, rig: Rig, flux_instance: Any) -> None:
        work = rig.work("sleep 300")
        held = rig.submit(work)
        rig.executor.release([held])
        rig.wait_for("Started", work.mark)
        flux_instance.command("cancel", "-m", "by hand", held.handle)
        ended = rig.wait_for("Ended", work.mark)
        assert (ended.state, ended.detail) == ("cancelled", "by hand")

    def test_jobs_of_others_are_neither_seen_nor_touched(self, rig: Rig, flux_instance: Any, tmp_path: Path) -> None:
        foreign = flux_instance.command("submit", "--urgency=hold", "true")
        other = make_flux(self.name, tmp_path, owner="f" * 16)
        theirs = other.submit(other.work("true"))
        handles = {f.handle for f in rig.executor.recover([]).jobs}
        assert foreign not in handles
        assert theirs.handle not in handles
        rig.executor.cancel([theirs, Held(SubmissionKey("x", 1, "y"), foreign)], "not ours")
        rig.run("true")
        assert other.found(theirs) is not None
        other.executor.cancel([theirs], "done")
        other.wait_for("Ended", theirs.mark)
        other.executor.close()
        flux_instance.command("cancel", foreign)

    def test_image_without_a_container_command_is_refused(self, rig: Rig) -> None:
        plain = rig.work("true")
        work = Work(plain.mark, plain.units, plain.demand, image="docker://alpine")
        rig.executor.submit([work])
        assert "container" in rig.wait_for("Refused", work.mark).detail

    def test_image_is_run_by_the_container_command(self, rig: Rig, tmp_path: Path) -> None:
        other = make_flux(self.name, tmp_path, container="/bin/sh -c 'echo in {image}: \"$@\"' x")
        plain = other.work("true")
        work = Work(plain.mark, plain.units, plain.demand, image="docker://alpine")
        other.executor.release([other.submit(work)])
        assert (other.wait_for("Ended", work.mark).output or "").startswith("in docker://alpine: /bin/sh -c true")
        other.executor.close()

    def test_a_malformed_jobspec_is_refused_with_flux_words(self, rig: Rig) -> None:
        plain = rig.work("true")
        bad = v1(["true"], system={"dependencies": "nonsense"})
        work = Work(plain.mark, (FluxJob("job", bad),), plain.demand)
        rig.executor.submit([work])
        refused = rig.wait_for("Refused", work.mark)
        assert refused.detail

    def test_three_tasks_in_order(self, rig: Rig, tmp_path: Path) -> None:
        env = {"PATH": "/usr/bin:/bin"}
        plain = rig.work("true")
        script = f"echo $0 >> {tmp_path}/order"
        units = (
            FluxJob("a", v1(["/bin/sh", "-c", f"sleep 0.3; {script}", "a"], environment=env)),
            FluxJob("b", v1(["/bin/sh", "-c", script, "b"], environment=env), ("a",)),
            FluxJob("c", v1(["/bin/sh", "-c", f"{script}; echo the-last", "c"], environment=env), ("a", "b")),
        )
        work = Work(plain.mark, units, Demand(0, 1, 0))
        held = rig.submit(work)
        assert len(held.handle.split(",")) == 3
        rig.executor.release([held])
        ended = rig.wait_for("Ended", work.mark)
        assert ended.state == "completed"
        assert (tmp_path / "order").read_text().split() == ["a", "b", "c"]
        assert "the-last" in (ended.output or "")


class TestFluxCli(TestFlux):
    name = "flux-cli"

    @pytest.fixture
    def flux_bindings(self) -> None:
        """Not needed: Flux's own Python has them."""


@pytest.fixture(params=["flux", "flux-cli"])
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "flux":
        request.getfixturevalue("flux_bindings")
    return str(request.param)


def test_a_frozen_broker_is_noticed_in_seconds_and_work_goes_on_after(
    kind: str, own_instance: Any, tmp_path: Path
) -> None:
    instance = own_instance()
    rig = make_flux(kind, tmp_path)
    assert rig.run("true").state == "completed"
    pid = instance.broker()
    os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    try:
        rig.wait_for("Down")
        assert time.monotonic() - began < 20
        work = rig.work("true")
        rig.executor.submit([work])
        rig.wait_for("Undecided", work.mark)
    finally:
        os.kill(pid, signal.SIGCONT)
    rig.until(lambda: [h for h in rig.told if type(h).__name__ == "Up"][1:], "coming up again")
    assert rig.run("true").state == "completed"
    rig.executor.close()


def test_a_shut_down_broker_is_noticed(kind: str, own_instance: Any, tmp_path: Path) -> None:
    instance = own_instance()
    rig = make_flux(kind, tmp_path)
    instance.stop()
    rig.wait_for("Down")
    rig.executor.close()


def test_a_fresh_instance_does_not_take_old_handles_for_its_own(
    kind: str, own_instance: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = own_instance("first")
    rig = make_flux(kind, tmp_path)
    old = rig.submit(rig.work("true"))
    rig.executor.close()
    first.stop()
    own_instance("second")
    rig = make_flux(kind, tmp_path)
    mine = rig.submit(rig.work("true"))
    mixed = Held(old.mark, mine.handle)  # the id that the fresh instance gave out belongs to another job
    assert rig.found(mixed) is None
    assert rig.found(old) is None
    rig.executor.close()


def test_a_restarted_instance_that_kept_its_state_has_the_held_job(
    kind: str, own_instance: Any, tmp_path: Path
) -> None:
    instance = own_instance(keep=True)
    rig = make_flux(kind, tmp_path)
    held = rig.submit(rig.work("echo kept"))
    before = rig.wait_for("Up").incarnation
    rig.executor.close()
    instance.stop()
    instance.start()
    os.environ["FLUX_URI"] = instance.uri
    rig = make_flux(kind, tmp_path)
    assert rig.wait_for("Up").incarnation != before
    found = rig.until(lambda: rig.found(held), "the held job")
    assert found.phase == "held"
    rig.executor.release([held])
    assert rig.wait_for("Ended", held.mark).state == "completed"
    rig.executor.close()


def test_stopped_queues_are_told(kind: str, own_instance: Any, tmp_path: Path) -> None:
    own_instance(config="[queues.batch]\n[queues.debug]\n[policy.jobspec.defaults.system]\nqueue = 'batch'")
    rig = make_flux(kind, tmp_path)
    assert rig.executor.usage().values()["queues_stopped"] == "batch,debug"
    rig.executor.close()


def test_drained_nodes_are_told(kind: str, own_instance: Any, tmp_path: Path) -> None:
    instance = own_instance()
    rig = make_flux(kind, tmp_path)
    assert rig.executor.usage().nodes_free == 1
    rig.executor.usage()
    instance.command("resource", "drain", "0")
    rig.wait_for("Changed")
    rig.until(lambda: rig.executor.usage().nodes_free == 0, "the node being away")
    rig.executor.close()


def test_a_thousand_held_jobs_recovered_quickly(kind: str, own_instance: Any, tmp_path: Path) -> None:
    own_instance()
    rig = make_flux(kind, tmp_path)
    works = [rig.work("true") for _ in range(300)]
    rig.executor.submit(works)
    held = [rig.wait_for("Submitted", w.mark) for w in works]
    assert len({h.handle for h in held}) == 300
    rig.reopen()
    found = rig.executor.recover([])
    assert {f.mark for f in found.jobs} == {w.mark for w in works}
    assert {f.phase for f in found.jobs} == {"held"}
    rig.executor.close()
