"""The command line against real workers: on the memory broker and store, and on RabbitMQ and Redis."""

from __future__ import annotations

import json
import logging
import shlex
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rainbow import topology
from rainbow.brokers.base import Message
from rainbow.client import Client
from running import Rainbow, Shell, alone, completes, eventually, fails, graph, in_force, io_graph, refuses


@pytest.fixture(autouse=True)
def _loggers() -> Iterator[None]:
    """Commands set up logging of their process, which here is ours."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)


@pytest.fixture(params=["memory", "rabbitmq"])
def rainbow(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rainbow]:
    """Running workers, an administrator's token in the environment, and nothing else of this machine's settings."""
    alone(monkeypatch, tmp_path)
    monkeypatch.delenv("RAINBOW_KEYRING")
    if request.param == "memory":
        name = uuid.uuid4().hex
        made = Rainbow(tmp_path, f"memory://{name}", f"memory://{name}")
    else:
        url, store, prefix = (request.getfixturevalue(f) for f in ("amqp_url", "redis_url", "redis_prefix"))
        made = Rainbow(tmp_path, url, store, prefix)
    yield from in_force(made, monkeypatch)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "nodes.json").write_text(json.dumps(graph(2, 4, "blue")))
    (tmp_path / "io.json").write_text(json.dumps(io_graph()))
    return tmp_path


# -- the flows of the first rainbow, each with its counterpart --------------------------------------------


def test_register_shows_and_keeps_token_and_secret(
    rainbow: Rainbow, sh: Shell, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rainbow.config.write_text(f"# mine\nbroker: {{url: '{rainbow.url}'}}\nclusters:\n- name: red\n  token: redtoken\n")
    shown = dict(line.split(None, 1) for line in sh("register blue --nodes nodes.json").out.splitlines())
    assert set(shown) == {"token", "secret"}
    said = sh("register blue --nodes nodes.json --save")
    kept = yaml.safe_load(rainbow.config.read_text())
    assert kept["clusters"][1]["name"] == "blue"
    for secret in (kept["clusters"][1]["token"], kept["cluster"]["secret"]):
        assert secret not in said.out + said.err
    assert kept["clusters"][0] == {"name": "red", "token": "redtoken"}
    assert kept["cluster"]["name"] == "blue"
    assert kept["cluster"]["keys"]
    assert rainbow.config.read_text().startswith("# mine\n")
    assert rainbow.config.stat().st_mode & 0o777 == 0o600
    # What was kept is enough: submitting, looking, and the cluster's own state need no other token.
    monkeypatch.delenv("RAINBOW_TOKEN")
    sh("state blue nodes_free=2 cores_free=8")
    assert sh("submit -N 2 --json hostname").json["status"] == "assigned"
    assert [c["name"] for c in sh("clusters --json").json["clusters"]] == ["blue"]
    assert len(sh("jobs --json").json["jobs"]) == 1
    drawn = sh("clusters blue --tree").out.splitlines()
    assert drawn[0] == "cluster"
    assert any("node" in line for line in drawn)
    sh(f"clusters blue --svg {files / 'blue.svg'}")
    assert (files / "blue.svg").read_text().startswith("<svg ")
    sh("clusters --tree", code=2)
    assert "cannot be written" in sh(f"clusters blue --svg {files / 'none' / 'x.svg'}", code=2).err
    assert "blue (1 jobs)" in sh("timeline").out
    sh(f"timeline --html {files / 'out.html'}")
    assert 'aria-label="Jobs of blue"' in (files / "out.html").read_text()
    assert len(sh("timeline --json --cluster blue").json["lanes"][0]["bars"]) == 1
    sh("timeline --since never", code=2)


def test_registering_again_from_here_is_fine_and_from_elsewhere_is_not(
    rainbow: Rainbow, sh: Shell, files: Path
) -> None:
    first = sh("register blue --nodes nodes.json --json").json
    again = sh("register blue --nodes nodes.json --json").json
    assert (first["created"], again["created"]) == (True, False)
    assert first["registration"] == again["registration"]
    rainbow.write_config({"agent": {"state_dir": str(files / "elsewhere")}})
    said = sh("register blue --nodes nodes.json", code=1)
    assert "registered by somebody else" in said.err


def test_the_first_rainbows_secret_registers_where_allowed(
    rainbow: Rainbow, sh: Shell, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAINBOW_TOKEN")
    (files / "secret.txt").write_text("peanutbutta\n")
    assert sh("register blue --nodes nodes.json --secret @secret.txt --json").json["cluster"] == "blue"
    assert "wrong" in sh("register red --nodes nodes.json --secret jelly", code=3).err


def test_submit_tells_the_id_and_where_the_job_went(rainbow: Rainbow, sh: Shell) -> None:
    rainbow.cluster("blue")
    said = sh("submit -N 2 -n 2 --name dinosaur hostname --long")
    assert str(uuid.UUID(said.out.strip())) == said.out.strip()
    assert "assigned to blue (1 of 1 clusters can run it)" in said.err


def test_submit_wait_prints_the_output_and_ends_as_the_job_did(rainbow: Rainbow, sh: Shell) -> None:
    rainbow.cluster("blue")
    rainbow.cluster("red", act=fails)
    said = sh("submit --wait --cluster blue hostname")
    assert said.out == "hello from blue\n"
    assert str(uuid.UUID(said.err.splitlines()[0]))
    failed = sh("submit --wait --cluster red false", code=3)
    assert failed.out == ""
    assert "failed on red: exit 3; no such file" in failed.err
    document = sh("submit --wait --cluster red --json false", code=3).json
    assert (document["status"], document["job"]["state"], document["job"]["returncode"]) == ("assigned", "failed", 3)


def test_satisfy_only_counts_matches_mismatches_and_total(rainbow: Rainbow, sh: Shell) -> None:
    rainbow.cluster("big", nodes=4)
    rainbow.cluster("small", nodes=1)
    said = sh("submit --satisfy-only -N 3 hostname")
    assert said.out.splitlines() == ["matches     1  big", "mismatches  1", "total       2"]
    assert "small: too-few-nodes" in said.err
    document = sh("submit --satisfy-only --json -N 3 hostname").json
    assert document["clusters"] == ["big"]
    assert (document["total_matches"], document["total_mismatches"], document["total_clusters"]) == (1, 1, 2)
    assert sh("submit --satisfy-only -N 30 hostname", code=1).out.splitlines()[0] == "matches     0"
    assert sh("jobs --json").json["jobs"] == []  # nothing was submitted


def test_a_job_none_can_run_is_exit_1_with_the_reasons(rainbow: Rainbow, sh: Shell) -> None:
    rainbow.cluster("blue")
    said = sh("submit -N 30 hostname", code=1)
    job = said.out.strip()
    assert "none of 1 clusters can run it" in said.err
    assert "blue: too-few-nodes" in said.err
    assert sh(f"wait {job}", code=1).out.startswith(f"{job}  no-match")
    assert sh("submit --wait -N 30 hostname", code=1).out == ""


def test_receive_lists_all_and_accepts_some(rainbow: Rainbow, sh: Shell, files: Path) -> None:
    sh("register blue --nodes nodes.json --save")
    sh("state blue nodes_free=100 cores_free=100")
    ids = [
        sh(f"submit -N 1 --name {name} {command}").out.strip()
        for name, command in (("one", "hostname"), ("two", "sleep 10"), ("three", "dinosaur things"))
    ]
    listed = sh("receive blue").out.splitlines()
    assert [line.split()[1] for line in listed[1:]] == ids
    assert listed[2].split()[2:] == ["two", "1", "sleep", "10", "-"]
    assert len(sh("receive blue --max-jobs 2 --json").json["waiting"]) == 2
    accepted = sh("receive blue --accept 1 --json").json
    assert accepted["accepted"] == ids[:1]
    assert accepted["waiting"][0]["jobspec"]["tasks"]
    eventually(lambda: sh(f"status {ids[0]} --json").json["state"] == "accepted")
    left = sh("receive blue --json").json["waiting"]
    assert sorted(job["id"] for job in left) == sorted(ids[1:])  # nothing is taken by looking
    said = sh("receive blue --accept 9")
    assert "asked to accept 9: there are 2" in said.err
    assert "no jobs wait for blue" in sh("receive blue").err


def test_receive_needs_the_clusters_own_secret(rainbow: Rainbow, sh: Shell, files: Path) -> None:
    sh("register blue --nodes nodes.json --save")
    assert "rainbow register red --save" in sh("receive red", code=3).err


def test_receive_leaves_what_nobody_signed(rainbow: Rainbow, sh: Shell, files: Path) -> None:
    sh("register blue --nodes nodes.json --save")
    forged = Message(topology.JOBS, "blue", b'{"version": 1, "id": "x"}', message_id="forged")
    rainbow.broker.publish([forged]).check(10)
    said = sh("receive blue --accept 1 --json").json
    assert said["accepted"] == []
    assert said["waiting"][0]["problem"] == "the message is not signed"
    assert len(sh("receive blue --json").json["waiting"]) == 1


def test_state_is_typed_and_merged(rainbow: Rainbow, sh: Shell, files: Path) -> None:
    sh("register blue --nodes nodes.json --save")
    (files / "state.yaml").write_text("memory_per_node: 200\nqueue: batch\n")
    sh("state blue cost_per_node_hour=2.5 open=true id='\"7\"' --file state.yaml")
    sh("state blue open=false")
    assert sh("clusters blue --json").json["state"] == {
        "cost_per_node_hour": 2.5,
        "open": False,
        "id": "7",
        "memory_per_node": 200,
        "queue": "batch",
    }
    (files / "bad.yaml").write_text("a: [1]\n")
    assert "'a'" in sh("state blue --file bad.yaml", code=2).err


def test_subsystems_come_and_go(rainbow: Rainbow, sh: Shell, files: Path) -> None:
    sh("register blue --nodes nodes.json --save")
    sh("state blue nodes_free=2 cores_free=8")
    question = "submit --satisfy-only --requires name=io,field=type,match=shm hostname"
    assert "missing-subsystem" in sh(question, code=1).err
    assert sh("subsystem add blue io --nodes io.json --json").json["subsystems"] == ["io"]
    sh(question)
    assert sh("subsystem remove blue io --json").json["subsystems"] == []
    sh(question, code=1)
    sh("subsystem remove blue io", code=5)
    sh("subsystem add blue io --nodes missing.json", code=2)
    sh("register green --nodes nodes.json --subsystem io=io.json")
    assert sh("clusters green --json").json["subsystems"] == ["io"]


def test_delete_forgets_and_the_name_is_free_again(rainbow: Rainbow, sh: Shell, files: Path) -> None:
    sh("register blue --nodes nodes.json")
    sh("clusters delete blue")
    sh("clusters blue", code=5)
    sh("clusters delete blue", code=5)
    assert sh("register blue --nodes nodes.json --json").json["created"] is True


# -- jobs -----------------------------------------------------------------------------------------------


def test_status_explain_jobs(rainbow: Rainbow, sh: Shell, tmp_path: Path) -> None:
    rainbow.cluster("blue")
    rainbow.cluster("tiny", nodes=1)
    job = sh("submit -N 2 --name two --wait --json hostname").json["id"]
    record = sh(f"status {job} --json").json
    assert (record["state"], record["cluster"], record["output"]) == ("completed", "blue", "hello from blue\n")
    assert "hello from blue" in sh(f"status {job}").out
    spec = sh(f"status {job} --jobspec").json
    assert spec["tasks"][0]["command"] == ["hostname"]
    why = sh(f"explain {job} --json").json
    assert why["reasons"]["tiny"]["code"] == "too-few-nodes"
    assert why["terms"]
    assert [event["state"] for event in why["history"]] == ["assigned", "accepted", "running", "completed"]
    text = sh(f"explain {job}").out
    assert "1 of 2 clusters can run it" in text
    assert "chosen" in text
    assert [j["id"] for j in sh("jobs --json --state completed --cluster blue").json["jobs"]] == [job]
    assert sh("jobs --json --state failed").json["jobs"] == []
    assert "no jobs to show" in sh("jobs --cluster tiny").err
    (tmp_path / "again.json").write_text(sh(f"status {job} --jobspec").out)
    again = sh(f"submit --wait --json --jobspec {tmp_path / 'again.json'}").json["job"]
    assert (again["state"], again["name"], again["cluster"]) == ("completed", "two", "blue")


def test_one_rejected_by_its_first_cluster_runs_on_the_second(rainbow: Rainbow, sh: Shell) -> None:
    rainbow.cluster("aa", act=refuses, nodes=8)
    rainbow.cluster("bb", nodes=4)
    document = sh("submit --select first --wait --json -N 2 hostname").json
    assert document["job"]["cluster"] == "bb"
    assert document["job"]["attempt"] == 2
    assert "rejected" in [event["state"] for event in sh(f"explain {document['id']} --json").json["history"]]


def test_wait_counts_every_job_and_has_a_limit(rainbow: Rainbow, sh: Shell) -> None:
    rainbow.cluster("blue")
    rainbow.cluster("red", act=fails)
    rainbow.cluster("idle", act=None)
    good = sh("submit -C blue hostname").out.strip()
    bad = sh("submit -C red false").out.strip()
    slow = sh("submit -C idle hostname").out.strip()
    sh(f"wait {good}")
    assert [j["state"] for j in sh(f"wait {good} {bad} --json", code=1).json["jobs"]] == ["completed", "failed"]
    assert "not ended after 0.3 s" in sh(f"wait {slow} --timeout 0.3", code=124).err
    assert "no job" in sh(f"wait {uuid.uuid4()}", code=5).err


def _takes(rainbow: Rainbow, name: str = "slow") -> tuple[Any, list[Any]]:
    """A cluster that accepts jobs and leaves the rest to the test; and what it took."""
    taken: list[Any] = []

    def accept(dispatch: Any) -> list[dict[str, Any]]:
        taken.append(dispatch)
        return [{"state": "accepted", "flux_id": "f1"}]

    return rainbow.cluster(name, act=accept), taken


def test_watch_tells_each_change(rainbow: Rainbow, sh: Shell) -> None:
    cluster, taken = _takes(rainbow)
    job = sh("submit hostname").out.strip()
    eventually(lambda: sh(f"status {job} --json").json["state"] == "accepted")

    def go_on() -> None:
        for event in ({"state": "running"}, {"state": "failed", "returncode": 2}):
            time.sleep(0.4)
            cluster.tell(taken[0], event)

    thread = threading.Thread(target=go_on)
    thread.start()
    lines = sh("watch").out.splitlines()
    thread.join()
    assert [line.split()[1] for line in lines] == ["accepted", "running", "failed"]
    assert lines[-1] == f"{job}  failed on slow: exit 2"
    assert json.loads(sh(f"watch {job} --json").out)["state"] == "failed"
    assert "all have ended" in sh("watch").err
    sh(f"watch {uuid.uuid4()}", code=5)


def test_cancel_is_kept_and_repeating_is_harmless(rainbow: Rainbow, sh: Shell) -> None:
    rainbow.cluster("idle", act=None)
    job = sh("submit hostname").out.strip()
    assert sh(f"cancel {job} --json").json["jobs"][0]["id"] == job
    sh(f"cancel {job}")
    assert sh(f"status {job} --json").json["cancel_requested"] is True
    unknown = uuid.uuid4()
    both = sh(f"cancel {job} {unknown} --json", code=5)
    assert both.json["jobs"][1] is None
    assert f"no job {unknown}" in both.err


def test_the_same_id_runs_once(rainbow: Rainbow, sh: Shell) -> None:
    rainbow.cluster("blue")
    job = str(uuid.uuid4())
    assert sh(f"submit --id {job} --wait hostname").out == "hello from blue\n"
    again = sh(f"submit --id {job} hostname")
    assert again.out.strip() == job
    assert "submitted before" in again.err
    assert sh(f"submit --id {job} --wait hostname").out == "hello from blue\n"
    assert sh(f"status {job} --json").json["attempt"] == 1
    sh("submit --id 7 hostname", code=2)


def test_jobspec_files(rainbow: Rainbow, sh: Shell, files: Path) -> None:
    rainbow.cluster("blue")
    (files / "job.yaml").write_text(
        "version: 1\nresources:\n  two: {type: node, count: 2, with: [{type: core, count: 1}]}\n"
        "tasks:\n- {command: [hostname], resources: two}\n"
    )
    sh("submit --jobspec job.yaml --wait")
    assert "simple form" in sh("submit --jobspec job.yaml -N 2", code=2).err
    assert "cannot be read" in sh("submit --jobspec missing.yaml", code=2).err
    assert "give either" in sh("submit --jobspec job.yaml hostname", code=2).err
    (files / "bad.yaml").write_text("version: 1\nresources: []\n")
    said = sh("submit --jobspec bad.yaml", code=2)
    assert str(uuid.UUID(said.out.strip()))
    assert "rainbow: invalid: " in said.err
    (files / "huge.yaml").write_text("#" * 2_000_000)
    assert "1048576" in sh("submit --jobspec huge.yaml", code=2).err


def test_all_fields_of_a_submission_reach_the_cluster(rainbow: Rainbow, sh: Shell, files: Path) -> None:
    sh("register blue --nodes nodes.json --save")
    sh("state blue nodes_free=2 cores_free=8")
    sh(
        "submit -N 1 -n 2 -c 2 -t 10m --name app --cwd /tmp --env A=1 --env B=x=y --image ghcr.io/app:1 --priority 20 "
        "--select least-loaded --match match --hold 5 --expires 2099-01-01T00:00:00Z -- app --flag"
    )
    job = sh("receive blue --json").json["waiting"][0]
    assert (job["name"], job["image"], job["priority"], job["command"]) == ("app", "ghcr.io/app:1", 20, "app --flag")
    text = json.dumps(job["jobspec"])
    assert "/tmp" in text
    assert '"B": "x=y"' in text
    assert "unknown" not in text
    assert sh("submit --select nonsense hostname", code=2).err.count("nonsense") == 1
    sh("submit --env nonsense hostname", code=2)
    assert "expired" in sh("submit --expires 5 hostname", code=1).err


# -- who may do what -------------------------------------------------------------------------------------


def test_each_sees_and_cancels_their_own(rainbow: Rainbow, sh: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    rainbow.cluster("idle", act=None)
    monkeypatch.setenv("RAINBOW_TOKEN", rainbow.token("submit", "alice"))
    hers = sh("submit hostname").out.strip()
    monkeypatch.setenv("RAINBOW_TOKEN", rainbow.token("submit", "bob"))
    his = sh("submit hostname").out.strip()
    assert [j["id"] for j in sh("jobs --json").json["jobs"]] == [his]
    sh(f"status {hers}", code=5)
    sh(f"wait {hers}", code=5)
    assert sh(f"cancel {hers}", code=3).out == ""
    assert sh("clusters drain idle", code=3).out == ""
    sh("groups set @x idle", code=3)
    sh("token revoke --sub alice", code=3)
    admin = rainbow.token()
    assert len(sh(f"jobs --json --token {admin}").json["jobs"]) == 2
    assert sh(f"status {hers} --token {admin} --json").json["user"] == "alice"


def test_a_token_for_each_cluster_in_one_file(rainbow: Rainbow, sh: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the first rainbow has it: more clusters may match than the file lists, and nothing breaks."""
    monkeypatch.delenv("RAINBOW_TOKEN")
    made = {name: rainbow.cluster(name).made for name in ("blue", "red", "green")}
    rainbow.write_config(
        {"clusters": [{"name": n, "token": made[n].token.get_secret_value()} for n in ("blue", "red")]}
    )
    answer = sh("submit --satisfy-only --json hostname").json
    assert sorted(answer["clusters"]) == ["blue", "red"]
    ids = [sh(f"submit --wait --json -C {name} hostname").json["id"] for name in ("blue", "red")]
    assert [j["state"] for j in sh(f"wait {' '.join(ids)} --json").json["jobs"]] == ["completed"] * 2
    assert sorted(c["name"] for c in sh("clusters --json").json["clusters"]) == ["blue", "red"]
    assert sorted(j["id"] for j in sh("jobs --json").json["jobs"]) == sorted(ids)
    assert [j["id"] for j in sh(f"cancel {' '.join(ids)} --json").json["jobs"]] == ids
    assert "no token for green: there is one for blue, red" in sh("submit -C green hostname", code=3).err


def test_no_token_bad_token_revoked_token(rainbow: Rainbow, sh: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    rainbow.cluster("blue")
    token = rainbow.token("submit", "mallory")
    sh(f"submit --token {token} hostname")
    sh("token revoke --sub mallory")
    eventually(lambda: sh(f"submit --token {token} --json hostname", code=3).json["status"] == "denied")
    assert "revoked" in sh(f"submit --token {token} hostname", code=3).err
    assert "is not a token" in sh("submit --token nonsense hostname", code=3).err
    (rainbow.folder / "token").write_text(rainbow.token("submit", "carol"))
    sh("submit --token @token hostname")
    sh("submit --token @missing hostname", code=2)
    monkeypatch.delenv("RAINBOW_TOKEN")
    for line in ("submit hostname", "jobs", "clusters", "watch", "clusters drain blue"):
        assert "no token: set RAINBOW_TOKEN" in sh(line, code=3).err


def test_drain_resume_groups(rainbow: Rainbow, sh: Shell) -> None:
    rainbow.cluster("blue")
    rainbow.cluster("red")
    sh("groups set @gpu blue red")
    assert sh("groups --json").json == {"groups": {"@gpu": ["blue", "red"]}}
    sh("clusters drain blue --reason 'new disks'")
    assert "new disks" in sh("clusters").out
    answer = sh("submit --json -C @gpu hostname").json
    assert answer["cluster"] == "red"
    assert "new disks" in answer["reasons"]["blue"]["detail"]
    sh("clusters resume blue")
    assert sh("clusters blue --json").json["drained"] is None
    assert sh("groups set gpu --json").json == {"groups": {}}
    sh("groups set @gpu nowhere", code=5)
    sh("clusters drain nowhere", code=5)
    sh("clusters 'no such name'", code=2)


# -- operating --------------------------------------------------------------------------------------------


def test_dead_letters_are_listed_shown_replayed_and_dropped(rainbow: Rainbow, sh: Shell) -> None:
    cluster = rainbow.cluster("blue")
    bad = [
        Message(topology.SUBMIT, "submit", b"{nonsense", message_id="one"),
        Message(topology.SUBMIT, "submit", json.dumps({"token": rainbow.token(), "colour": "red"}).encode()),
    ]
    rainbow.broker.publish(bad).check(10)
    eventually(lambda: len(sh("dead list --json").json["letters"]) == 2)
    letters = sh("dead list --json").json["letters"]
    assert [letter["reason"] for letter in letters] == ["invalid", "invalid"]
    assert letters[0]["exchange"] == topology.SUBMIT
    assert letters[0]["queue"] == topology.SCHEDULER_QUEUE
    assert "unknown field 'colour'" in sh("dead list").out
    shown = sh(f"dead show {letters[1]['key']} --json").json
    assert shown["body"] == {"token": "***", "colour": "red"}
    assert "colour" in sh(f"dead show {letters[1]['key']}").out
    sh("dead show 0123456789", code=5)
    # Looking changes nothing, however often: a queue drops what came back to it 20 times.
    for _ in range(25):
        assert len(sh("dead list --json").json["letters"]) == 2
    sh(f"dead replay {letters[0]['key']}")  # it is still nonsense, so it dies once more, later than the other
    eventually(lambda: len(sh("dead list --json").json["letters"]) == 2)
    # It is another letter now, which says that it was replayed: the old name is of none, and of two names one is not
    # enough to do anything.
    sh(f"dead replay {letters[0]['key']}", code=5)
    now = sh("dead list --json").json["letters"]
    assert [x["history"] for x in now] == [[], ["replayed 1 time"]]
    sh(f"dead drop {now[0]['key']} 0123456789", code=5)
    sh("dead drop", code=2)
    sh(f"dead drop --all {now[0]['key']}", code=2)
    sh("dead drop --all --reason nothing")
    assert sh(f"dead drop {now[0]['key']} --reason nothing --json").json["dropped"] == []
    assert len(sh("dead list --json").json["letters"]) == 2
    assert len(sh("dead drop --all --json").json["dropped"]) == 2
    assert "no dead letters" in sh("dead list").err
    assert cluster.made.cluster == "blue"


def test_a_replayed_submission_runs_with_the_operators_token(rainbow: Rainbow, sh: Shell) -> None:
    """It died of a name that is known by now (here: put among the dead by hand, as the workers do)."""
    from rainbow.brokers.base import Delivery
    from rainbow_workers.dead_letters import letter
    from rainbow_workers.keys import ClusterKeys
    from rainbow_workers.outlet import Outlet

    rainbow.cluster("blue")
    job = str(uuid.uuid4())
    body = json.dumps({"id": job, "token": rainbow.token("submit", "alice"), "command": ["hostname"]}).encode()
    died = letter(
        Delivery(topology.SCHEDULER_QUEUE, body, "application/json", exchange=topology.SUBMIT, routing_key="submit"),
        "unknown-plugin",
        "no selection plugin named 'mine'",
    )
    Outlet(rainbow.broker, ClusterKeys(rainbow.ring)).publish([died]).check(10)
    refused = sh("dead replay --all --reason unknown-plugin", code=2)
    assert "--with-my-token" in refused.err
    sh("dead replay --all --reason unknown-plugin --with-my-token")
    ended = eventually(lambda: sh(f"wait {job} --json").json["jobs"][0])
    assert (ended["state"], ended["user"]) == ("completed", "root")
    assert "no dead letters" in sh("dead list").err


def test_doctor_finds_everything_well(rainbow: Rainbow, sh: Shell) -> None:
    said = sh("doctor --json", code=None)
    checks = said.json["checks"]
    # The store of this machine may keep nothing on disk, and the memory store never does: doctor says so.
    problems = [c for c in checks if c["ok"] is False]
    assert all("keeps nothing on disk" in c["detail"] or "lost with its process" in c["detail"] for c in problems)
    assert said.code == (1 if problems else 0)
    assert said.json["ok"] is (not problems)
    found = {c["name"] for c in checks if c["ok"]}
    assert {"versions", "settings", "broker", "queues", "registrar", "store", "key ring", "token"} <= found
    assert "ok       registrar" in sh("doctor", code=said.code).out


def test_doctor_names_what_is_missing(rainbow: Rainbow, sh: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    rainbow.service.stop()
    rainbow.broker.delete([topology.RECORDER_QUEUE, topology.hold_queue(5)])
    monkeypatch.delenv("RAINBOW_TOKEN")
    checks = {c["name"]: c for c in sh("doctor --json", code=1).json["checks"]}
    assert checks["queues"]["detail"] == "missing: rainbow.records, rainbow.hold.5"
    assert checks["queues"]["advice"] == "run `rainbow broker setup`"
    assert checks["registrar"]["ok"] is False
    assert checks["token"]["ok"] is False
    sh("broker setup")
    rainbow.write_config({"queues": {"dispatch_timeout": 5, "max_other": 7}})
    checks = {c["name"]: c for c in sh("doctor --json", code=1).json["checks"]}
    assert "x-max-length" in checks["queues"]["detail"]
    if rainbow.url.startswith("amqp"):  # the limits that are there are worked with, and named
        said = sh("broker setup").err
        assert "x-max-length=2000000, wanted 7" in said
        assert "rainbow broker migrate" in said
    else:
        assert "x-max-length" in sh("broker setup", code=1).err


def test_broker_setup_declares_and_may_be_repeated(rainbow: Rainbow, sh: Shell) -> None:
    said = sh("broker setup --cluster blue --json").json
    assert said["declared"] is True
    for queue in said["queues"]:
        assert rainbow.broker.stats(queue).messages == 0
    sh("broker setup")
    assert "rainbow.jobs.blue" in said["queues"]
    assert sh("broker setup --dry-run --cluster green --json").json["declared"] is False
    sh("broker setup --cluster 'x y'", code=2)


def test_without_a_scheduler_the_submission_is_kept_and_said_so(rainbow: Rainbow, sh: Shell) -> None:
    rainbow.service.stop()
    said = sh("submit --timeout 0.5 hostname", code=124)
    assert said.out.strip() in said.err
    assert "waits in the queue" in said.err
    assert "is rainbow-scheduler running" in sh("clusters --timeout 0.5", code=124).err


def test_an_empty_broker_says_what_to_run(rainbow: Rainbow, sh: Shell) -> None:
    rainbow.service.stop()
    rainbow.broker.delete([topology.SCHEDULER_QUEUE, topology.CONTROL_QUEUE])
    for line in ("submit hostname", "clusters", "jobs", f"wait {uuid.uuid4()}"):
        said = sh(line, code=4)
        assert "rainbow broker setup" in said.err, line


# -- the client ----------------------------------------------------------------------------------------------


def test_the_client_in_one_line(rainbow: Rainbow) -> None:
    rainbow.cluster("blue")
    from rainbow import Client

    with Client(timeout=20) as client:  # url and token from settings and environment, as the commands do
        record = client.submit(command=["hostname"], nodes=2).wait(20)
    assert (record.state, record.cluster, record.returncode) == ("completed", "blue", 0)


def test_many_at_once_and_from_many_threads(rainbow: Rainbow) -> None:
    rainbow.cluster("blue", nodes=50, cores=64)
    with rainbow.client() as client:
        found: list[Any] = []

        def some(n: int) -> None:
            jobs = client.submit_many([{"command": ["hostname", str(n), str(i)]} for i in range(50)])
            found.extend(job.wait(60) for job in jobs)

        threads = [threading.Thread(target=some, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert len({record.id for record in found}) == 200
        assert {record.state for record in found} == {"completed"}


def test_events_of_jobs_under_way(rainbow: Rainbow) -> None:
    cluster, taken = _takes(rainbow)
    with rainbow.client() as client:
        jobs = client.submit_many([{"command": "hostname"}, {"command": "hostname"}])
        assert [job.answer.status for job in jobs] == ["assigned", "assigned"]
        eventually(lambda: len(taken) == 2)
        seen: list[tuple[str, str]] = []
        for record in client.events([job.id for job in jobs], timeout=30):
            seen.append((record.id, record.state))
            if record.state == "accepted":
                dispatch = next(d for d in taken if d.id == record.id)
                cluster.tell(dispatch, {"state": "cancelled", "detail": "by the test"})
        assert sorted(i for i, state in seen if state == "cancelled") == sorted(job.id for job in jobs)
        assert jobs[0].wait(5).state == "cancelled"
        assert jobs[0].cancel().state == "cancelled"


def test_answers_that_are_errors_raise(rainbow: Rainbow) -> None:
    from rainbow.errors import Denied, InvalidInput

    rainbow.cluster("blue")
    with rainbow.client() as client:
        with pytest.raises(InvalidInput, match="version"):
            client.submit(jobspec={"version": 7}).wait(20)
        assert client.submit(command="hostname", nodes=99).wait(20).state == "no-match"
        assert client.satisfy(command="hostname").clusters == ["blue"]
    with Client(settings=client_settings(rainbow), token="nonsense", timeout=20) as client, pytest.raises(Denied):
        client.submit(command="hostname").wait(20)


def client_settings(rainbow: Rainbow) -> Any:
    from rainbow.settings import Settings

    return Settings.model_validate({"broker": {"url": rainbow.url}})


# -- as a process of its own -------------------------------------------------------------------------------------


@pytest.fixture
def process(tmp_path: Path) -> Callable[[str], subprocess.CompletedProcess[str]]:
    def run(line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "rainbow.cli", *shlex.split(line)],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=tmp_path,
        )

    return run


@pytest.mark.parametrize("rainbow", ["rabbitmq"], indirect=True)
def test_processes(rainbow: Rainbow, process: Callable[[str], subprocess.CompletedProcess[str]]) -> None:
    rainbow.cluster("blue", act=completes)
    done = process("submit --wait -N 2 hostname")
    assert (done.returncode, done.stdout) == (0, "hello from blue\n"), done.stderr
    done = process("submit --json -N 99 hostname")
    assert done.returncode == 1
    assert done.stderr == ""
    assert json.loads(done.stdout)["status"] == "no-match"
    began = time.monotonic()
    done = process("jobs --json")
    assert json.loads(done.stdout)["jobs"][0]["state"] == "no-match"
    assert time.monotonic() - began < 30


def test_no_broker_is_exit_4_at_once(sh: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone(monkeypatch, tmp_path)
    monkeypatch.setenv("RAINBOW_TOKEN", "a.b.c")
    monkeypatch.setenv("RAINBOW_BROKER_URL", "amqp://me:hunter22@127.0.0.1:1/nowhere")
    for line in ("submit hostname", "clusters", "broker setup", "dead list"):
        said = sh(line, code=4)
        assert "cannot reach the broker amqp://me:***@127.0.0.1:1/nowhere: nothing listens at 127.0.0.1:1" in said.err
    checks = {c["name"]: c for c in sh("doctor --json", code=4).json["checks"]}
    assert checks["broker"]["unreachable"] is True
    assert "hunter22" not in str(checks)


def test_a_refused_login_is_exit_3_at_once(
    amqp_url: str, sh: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from urllib.parse import urlsplit, urlunsplit

    parts = urlsplit(amqp_url)
    wrong = urlunsplit(parts._replace(netloc=f"nobody:hunter22@{parts.hostname}:{parts.port}"))
    alone(monkeypatch, tmp_path)
    monkeypatch.setenv("RAINBOW_TOKEN", "a.b.c")
    monkeypatch.setenv("RAINBOW_BROKER_URL", wrong)
    for line in ("submit hostname", "clusters", "dead list", "broker setup"):
        said = sh(line, code=3)
        assert "refused user 'nobody'" in said.err
        assert "hunter22" not in said.err
    checks = {c["name"]: c for c in sh("doctor --json", code=1).json["checks"]}
    assert "refused user" in checks["broker"]["detail"]
