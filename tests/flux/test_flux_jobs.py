"""Jobs through an agent beside a real Flux: what it is told of them, bids from its queue, output, odd ends."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from agentrig import Agents, shell
from rainbow.client import Client
from rig import Rig, eventually, resources

pytestmark = pytest.mark.usefixtures("flux_bindings")


def in_flux(instance: Any, record: dict[str, Any]) -> dict[str, Any]:
    """The jobspec as Flux has it."""
    found: dict[str, Any] = json.loads(instance.command("job", "info", "--original", record["flux_id"], "jobspec"))
    return found


def test_what_flux_is_told(rig: Rig, agents: Agents, flux_instance: Any, flux_uri: str) -> None:
    agents.start(executor="flux", graph=None)
    everything = {
        "command": ["/bin/sh", "-c", "echo $GIVEN in $PWD"],
        "duration": "90s",
        "cwd": "/usr",
        "environment": {"GIVEN": "yes"},
        "name": "told",
        "priority": 20,
    }
    record = rig.until(rig.submit(**everything)["id"], "completed", 60)
    assert record["output"] == "yes in /usr\n"
    spec = in_flux(flux_instance, record)
    system = spec["attributes"]["system"]
    assert (spec["version"], system["duration"], system["cwd"], system["job"]["name"]) == (1, 90, "/usr", "told")
    assert system["environment"]["GIVEN"] == "yes"
    urgency = flux_instance.command("jobs", "-a", "-n", "-o", "{urgency}", record["flux_id"])
    assert urgency == "20"
    # Left unsaid, a time limit is said all the same: Flux refuses a jobspec without one.
    plain = rig.until(rig.submit(command="true")["id"], "completed", 60)
    assert in_flux(flux_instance, plain)["attributes"]["system"]["duration"] == 0


def test_a_canonical_jobspec_runs(rig: Rig, agents: Agents, flux_uri: str) -> None:
    agents.start(executor="flux", graph=None)
    core = {"type": "core", "count": {"min": 1, "max": 2, "operator": "+", "operand": 1}}
    slot = {"type": "slot", "label": "default", "count": 2, "with": [core]}
    canonical = {
        "version": 9999,
        "resources": [{"type": "node", "count": 1, "with": [slot]}],
        "tasks": [{"command": ["/bin/echo", "canonical"], "slot": "default", "count": {"per_slot": 1}}],
        "attributes": {"system": {"duration": 60.0}},
    }
    assert rig.until(rig.submit(jobspec=canonical)["id"], "completed", 60)["output"] == "canonical\ncanonical\n"


def test_what_does_not_fit_flux_goes_to_the_next_cluster(rig: Rig, agents: Agents, flux_uri: str) -> None:
    """The registered graph says more than this Flux has, as when nodes were taken out of it."""
    # Its reports say so too, or the job would wait for another cluster.
    more = {"cores_free": 64, "nodes_free": 1}
    agents.start("blue", executor="flux", graph=resources(nodes=1, cores=64), values=more)
    eventually(lambda: agents.known("blue")["state"].get("cores_free") == 64, 60)
    agents.start("red", executor="dry-run", graph=resources(nodes=1, cores=64))
    answer = rig.submit(jobspec=shell("true", cores=32), selection={"name": "first"})
    assert answer["cluster"] == "blue"
    record = rig.until(answer["id"], "completed", 60)
    assert (record["cluster"], record["attempt"]) == ("red", 2)
    [refused] = [e for e in record["history"] if e["state"] == "rejected"]
    assert (refused["cluster"], refused["code"]) == ("blue", "no-fit")
    assert "unsatisfiable" in refused["detail"].lower()


def test_bids_come_from_flux_s_queue(rig: Rig, agents: Agents, own_instance: Any) -> None:
    instance = own_instance(cores=4)
    agents.start(executor="flux", graph=None, values={"cost_per_core_hour": 2})
    # A stranger's job counts as well: the queue is everybody's.
    instance.command("submit", "-n", "4", "-t", "100s", "sleep", "300")
    eventually(lambda: instance.command("jobs", "-n", "-f", "running", "-o", "{id}"), 30)
    behind = rig.submit(jobspec=shell("true", cores=4, duration=50), clusters=["blue"])
    rig.until(behind["id"], "accepted", 30)
    eventually(lambda: instance.command("jobs", "-n", "-f", "sched", "-o", "{urgency}") == "16", 30)
    selection = {"name": "bid", "options": {"within": 10.0}}
    answer = rig.submit(jobspec=shell("true", cores=2, duration=1800), selection=selection)
    bid = answer["selection"]["bids"]["blue"]
    assert bid["cost"] == 2.0
    assert 120 < bid["eta"] <= 150, "the rest of 100 s, then 50 s"
    instance.command("cancel", "--all")
    record = rig.until(answer["id"], "cancelled", 60)
    assert record["cluster"] == "blue"
    free = rig.submit(jobspec=shell("true", cores=2), selection=selection)
    assert free["selection"]["bids"]["blue"]["eta"] == 0
    started = rig.until(free["id"], "completed", 60)["times"]["running"]
    assert abs(started - free["selection"]["promised"]) < 20


def test_output_is_followed(rig: Rig, agents: Agents, flux_uri: str, tmp_path: Path) -> None:
    agents.start(executor="flux", graph=None)
    script = f"echo one; echo oops >&2; while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; echo two"
    answer = rig.submit(jobspec=shell(script))
    rig.until(answer["id"], "running", 60)
    with Client(broker=rig.connect("reader"), token=rig.token, timeout=20) as client:
        said, errors = "", ""
        for piece in client.logs(answer["id"], follow=True, timeout=60):
            assert piece.source == "job"
            said, errors = said + piece.stdout, errors + piece.stderr
            if said == "one\n":
                (tmp_path / "go").touch()
        assert (said, errors) == ("one\ntwo\n", "oops\n")


def test_a_job_whose_broker_was_killed_ends_without_a_finish_event(
    rig: Rig, agents: Agents, own_instance: Any, tmp_path: Path
) -> None:
    instance = own_instance(keep=True)
    agents.start(executor="flux", graph=None)
    answer = rig.submit(jobspec=shell(f"touch {tmp_path}/runs; sleep 60"))
    rig.until(answer["id"], "running", 60)
    time.sleep(2.5)  # Flux has written down where it is (checkpoint-period)
    os.kill(instance.broker(), signal.SIGKILL)
    instance.process.wait(60)
    # Its address stays: agents look for it where it was.
    before = instance.uri
    instance.start()
    os.environ["FLUX_URI"] = instance.uri
    record = eventually(lambda: next((r for r in [rig.job(answer["id"])] if r and r["state"] in _OVER), None), 90)
    assert record["state"] in ("failed", "lost"), (record, before)
    assert record["detail"]
    again = rig.submit(jobspec=shell("true"))
    assert rig.until(again["id"], "completed", 60)


_OVER = ("completed", "failed", "cancelled", "lost")
