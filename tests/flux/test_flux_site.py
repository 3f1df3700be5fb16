"""What the site says counts, with each of Flux's schedulers: holds, queues, limits, drained nodes; refusals by kind."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from agentrig import Agents, shell
from fluxrig import make_flux
from rainbow.jobspec.flux.v1 import FluxJob
from rainbow.jobspec.request import Demand
from rainbow_agents.executors.base import Held, Work
from rainbow_agents.executors.testing import Rig as ExecutorRig
from rainbow_agents.executors.testing import v1
from rig import Rig, eventually

QUEUES = """
[queues.batch]
[queues.debug]
[queues.small.policy.limits]
job-size.max.ncores = 2
[policy.jobspec.defaults.system]
queue = 'batch'
"""


@pytest.fixture(params=["flux", "flux-cli"])
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "flux":
        request.getfixturevalue("flux_bindings")
    return str(request.param)


def refusal(rig: ExecutorRig, **options: Any) -> tuple[str, str]:
    work = rig.work("true", **options)
    rig.executor.submit([work])
    refused = rig.wait_for("Refused", work.mark)
    return refused.code, refused.detail


@pytest.mark.usefixtures("flux_uri")
class TestRefusals:
    """The same code from either scheduler, though their errors differ."""

    @pytest.fixture
    def executor(self, kind: str, tmp_path: Path) -> Any:
        rig = make_flux(kind, tmp_path)
        yield rig
        rig.executor.close()

    @pytest.mark.parametrize(
        "options",
        [
            {"cores": 1000},
            {"nodes": 50},
            {"system": {"constraints": {"properties": ["no-such-property"]}}},
        ],
        ids=["cores", "nodes", "property"],
    )
    def test_what_is_not_here_is_no_fit(self, executor: ExecutorRig, options: dict[str, Any]) -> None:
        code, detail = refusal(executor, **options)
        assert code == "no-fit"
        assert detail

    def test_what_flux_cannot_read_is_a_bad_spec(self, executor: ExecutorRig) -> None:
        plain = executor.work("true")
        changes: tuple[dict[str, Any], ...] = ({"resources": []}, {"resources": "nonsense"}, {"version": 99})
        for change in changes:
            work = Work(executor.work("true").mark, (FluxJob("job", {**v1(["true"]), **change}),), plain.demand)
            executor.executor.submit([work])
            assert executor.wait_for("Refused", work.mark).code == "bad-spec", change

    def test_one_bad_job_among_good_ones_is_its_own_trouble(self, executor: ExecutorRig) -> None:
        good = [executor.work("true") for _ in range(5)]
        half = {key: value for key, value in v1(["true"]).items() if key != "resources"}
        bad = Work(executor.work("true").mark, (FluxJob("job", half),), good[0].demand)
        executor.executor.submit([*good[:2], bad, *good[2:]])
        assert executor.wait_for("Refused", bad.mark).code == "bad-spec"
        held = [Held(w.mark, executor.wait_for("Submitted", w.mark).handle) for w in good]
        executor.executor.release(held)
        for work in good:
            assert executor.wait_for("Ended", work.mark).state == "completed"
        assert executor.count("Down", bad.mark) == 0


def test_queues_of_the_site(kind: str, own_instance: Any, tmp_path: Path) -> None:
    """Closed ones are busy, a limit is the site's policy, an unknown one is the job's mistake."""
    instance = own_instance(config=QUEUES)
    rig = make_flux(kind, tmp_path)
    instance.command("queue", "start", "--all")
    assert rig.executor.outlook().closed == {}  # type: ignore[attr-defined]
    instance.command("queue", "stop", "batch")
    instance.command("queue", "disable", "-m", "maintenance", "debug")
    values = rig.executor.usage().values()
    assert (values["queues_stopped"], values["queues_disabled"]) == ("batch", "debug")
    outlook = rig.executor.outlook()  # type: ignore[attr-defined]
    assert outlook.default_queue == "batch"
    assert sorted(outlook.closed) == ["batch", "debug"]
    assert "stopped" in outlook.closed["batch"]
    assert refusal(rig, system={"queue": "debug"})[0] == "busy"
    assert "maintenance" in refusal(rig, system={"queue": "debug"})[1]
    assert refusal(rig, cores=3, system={"queue": "small"})[0] == "policy"
    assert refusal(rig, system={"queue": "nowhere"})[0] == "bad-spec"
    rig.executor.close()


def test_drained_nodes_are_there_and_not_up(kind: str, own_instance: Any, tmp_path: Path) -> None:
    instance = own_instance(cores=4)
    rig = make_flux(kind, tmp_path)
    instance.command("resource", "drain", "0")

    def down() -> Any:
        seen = rig.executor.outlook()  # type: ignore[attr-defined]
        return seen if seen.up == Demand(0, 0, 0) else None

    seen = rig.until(down, "the node being drained")
    assert (seen.total.nodes, seen.total.cores) == (1, 4)
    # It may come back: it is submitted, and waits.
    held = rig.submit(rig.work("true"))
    rig.executor.release([held])
    instance.command("resource", "undrain", "0")
    assert rig.wait_for("Ended", held.mark).state == "completed"
    rig.executor.close()


def test_a_job_that_waits_for_a_time_stands_in_no_ones_way(kind: str, own_instance: Any, tmp_path: Path) -> None:
    instance = own_instance(cores=2)
    rig = make_flux(kind, tmp_path)
    instance.command("submit", "--begin-time=+1h", "-n", "2", "-t", "1h", "sleep", "1")
    rig.until(lambda: rig.executor.usage().jobs_pending == 1, "the job being counted")
    assert rig.executor.outlook().waiting == ()  # type: ignore[attr-defined]
    instance.command("cancel", "--all")
    rig.executor.close()


@pytest.mark.usefixtures("flux_bindings")
def test_an_operator_s_hold_stays(rig: Rig, agents: Agents, own_instance: Any) -> None:
    """A pending job that a person holds in Flux is neither released nor ended by us, however often all is compared."""
    instance = own_instance(cores=2)
    agents.start(executor="flux", graph=None, parts={"reconcile_every": 0.5})
    instance.command("queue", "stop")
    waiting = rig.submit(jobspec=shell("true"))["id"]
    number = rig.until(waiting, "accepted", 60)["flux_id"]

    def urgency() -> str:
        return str(instance.command("jobs", "-n", "-o", "{urgency}", number))

    eventually(lambda: urgency() == "16", 30)
    instance.command("job", "urgency", number, "hold")
    instance.command("queue", "start")
    until = time.monotonic() + 4
    while time.monotonic() < until:
        assert urgency() in ("0", "held"), "the hold was undone"
        time.sleep(0.3)
    record = rig.job(waiting)
    assert record is not None
    assert record["state"] == "accepted"
    instance.command("job", "urgency", number, "default")
    rig.until(waiting, "completed", 60)


@pytest.mark.usefixtures("flux_uri", "flux_bindings")
class TestOutput:
    def test_what_is_cut_is_named_with_the_amount(self, rig: Rig, agents: Agents) -> None:
        agents.start(executor="flux", graph=None, options={"output_limit": "1K"})
        script = "i=0; while [ $i -lt 300 ]; do echo line-$i; i=$((i+1)); done; echo THE-REAL-END"
        job = rig.submit(jobspec=shell(script))["id"]
        record = rig.until(job, "completed", 60)
        assert "bytes truncated" in record["output"]
        piece = self.read(rig, job)
        assert piece["ended"]
        assert any("bytes truncated" in note for note in piece["notes"])

    def test_a_redirected_stream_is_named_with_its_file(self, rig: Rig, agents: Agents, tmp_path: Path) -> None:
        agents.start(executor="flux", graph=None)
        output = {"stdout": {"type": "file", "path": str(tmp_path / "out.txt")}}
        jobspec = shell("echo hidden", shell={"options": {"output": output}})
        job = rig.submit(jobspec=jobspec)["id"]
        rig.until(job, "completed", 60)
        assert any(str(tmp_path / "out.txt") in note for note in self.read(rig, job)["notes"])

    def test_streams_keep_their_order(self, rig: Rig, agents: Agents) -> None:
        agents.start(executor="flux", graph=None)
        job = rig.submit(jobspec=shell("echo a; sleep 0.3; echo b >&2; sleep 0.3; echo c"))["id"]
        rig.until(job, "completed", 60)
        assert self.read(rig, job)["order"] == [[0, 2], [1, 2], [0, 2]]

    def read(self, rig: Rig, job: str) -> dict[str, Any]:
        def ended() -> Any:
            piece = rig.rpc.call({"op": "logs", "version": 1, "id": job})
            return piece if piece["ended"] else None

        piece: dict[str, Any] = eventually(ended, 30)
        return piece


@pytest.mark.usefixtures("flux_uri")
def test_a_group_runs_by_the_agent_s_own_flux(kind: str, tmp_path: Path, rig: Rig, agents: Agents) -> None:
    """Whatever PATH its job has: Flux need not be in a folder of the system."""
    agents.start(executor=kind, graph=None, options={"path": "/usr/bin:/bin"})
    nextgen = {
        "version": 1,
        "resources": {"all": {"type": "core", "count": 1}},
        "groups": [{"name": "both", "resources": "all", "tasks": [{"name": "one", "command": ["true"]}]}],
        "tasks": [{"group": "both"}],
    }
    job = rig.submit(jobspec=nextgen)
    record = rig.until(job["id"], "completed", 90)
    assert record["state"] == "completed", json.dumps(record)


def test_a_restarted_instance_is_found_at_its_new_address(
    kind: str, own_instance: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = own_instance()
    monkeypatch.delenv("FLUX_URI")
    rig = make_flux(kind, tmp_path, uri=f"file:{instance.folder / 'uri'}")
    assert rig.run("true").state == "completed"
    before = instance.uri
    instance.stop()
    rig.wait_for("Down")
    instance.start()
    assert instance.uri != before
    rig.until(lambda: [e for e in rig.told if type(e).__name__ == "Up"][1:], "coming up again")
    assert rig.run("true").state == "completed"
    rig.executor.close()


@pytest.mark.usefixtures("flux_bindings")
def test_a_stopped_queue_comes_after_one_that_starts_jobs(rig: Rig, agents: Agents, own_instance: Any) -> None:
    instance = own_instance(cores=4)
    agents.start("blue", executor="flux", graph=None)
    agents.start("red")
    instance.command("queue", "stop")
    eventually(lambda: "stopped" in str(agents.known("blue")["state"].get("closed")), 60)
    selection = {"name": "first"}
    assert rig.submit(jobspec=shell("true"), selection=selection)["cluster"] == "red"
    instance.command("queue", "start")
    eventually(lambda: agents.known("blue")["state"].get("closed") == "", 60)
    eventually(lambda: rig.submit(jobspec=shell("true"), selection=selection)["cluster"] == "blue", 30)
