"""Publishing without any code of ours: pika, amqp-tools and Go, as the how-to shows it, on RabbitMQ with the workers.

The programs are the text of docs/how-to/submit-from-any-language.md itself; tests/docs runs its commands one after the
other, this file looks closer at what becomes of each.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rig import Rig, eventually, resources

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))

from docs.documents import block_named
from docs.programs import needs

HOW_TO = "docs/how-to/submit-from-any-language.md"
#: Where Debian's golang-github-rabbitmq-amqp091-go-dev puts what the Go program needs.
GO_PATH = Path("/usr/share/gocode")


@pytest.fixture
def rig(amqp_url: str, redis_url: str, redis_prefix: str) -> Iterator[Rig]:
    with Rig(amqp_url, redis_url, prefix=redis_prefix) as made:
        made.register("blue", resources(nodes=2, cores=8))
        yield made


@pytest.fixture
def run(rig: Rig, tmp_path: Path) -> Callable[..., str]:
    """Run a program that the how-to shows, or any other, with the broker's URL and a token in its environment."""
    environment = {**os.environ, "RAINBOW_BROKER_URL": rig.broker_url, "RAINBOW_TOKEN": rig.token}

    def call(*words: str, **given: Any) -> str:
        done = subprocess.run(
            words, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False, **given
        )
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    return call


def program(folder: Path, name: str, **changes: str) -> str:
    """The program in the how-to, in a file; `changes` are put in place of its parts."""
    text = block_named(HOW_TO, name)
    for old, new in changes.items():
        text = text.replace(old, new)
    (folder / name).write_text(text)
    return str(folder / name)


def take(rig: Rig) -> dict[str, Any]:
    """The next dispatch in blue's queue, taken out of it, its signature checked as an agent does."""
    consumer = rig.jobs_of("blue", prefetch=1)
    try:
        delivery = eventually(lambda: consumer.take(1, 0.5))[0]
        consumer.ack([delivery])
        return rig.open(delivery)
    finally:
        consumer.cancel()


# -- pika ---------------------------------------------------------------------------------------------------


def test_pika_is_ten_lines() -> None:
    lines = [line for line in block_named(HOW_TO, "submit.py").splitlines() if line.strip()]
    assert len(lines) <= 11  # with the one that prints


def test_pika_with_an_answer(rig: Rig, run: Callable[..., str], tmp_path: Path) -> None:
    said = run(sys.executable, program(tmp_path, "submit.py")).split()
    assert said[1:] == ["assigned", "blue"]
    dispatch = take(rig)
    assert dispatch["id"] == said[0]
    assert dispatch["user"] == "alice"
    assert rig.token not in str(dispatch)


def test_pika_without_an_answer(rig: Rig, run: Callable[..., str], tmp_path: Path) -> None:
    job_id = run(sys.executable, program(tmp_path, "submit-and-forget.py")).strip()
    assert rig.until(job_id, "assigned")["cluster"] == "blue"
    assert take(rig)["id"] == job_id


def test_a_repeat_of_an_id_is_the_same_job(rig: Rig, run: Callable[..., str], tmp_path: Path) -> None:
    job_id = str(uuid.uuid4())
    changes = {"str(uuid.uuid4())": repr(job_id)}
    for _ in range(3):
        assert run(sys.executable, program(tmp_path, "submit-and-forget.py", **changes)).strip() == job_id
    other = rig.submit(command="hostname")["id"]
    # A repeat may be dispatched again, as the same attempt, of which an agent starts one: nothing else comes.
    dispatches = [take(rig)]
    while dispatches[-1]["id"] != other:
        dispatches.append(take(rig))
    assert {(d["id"], d["attempt"]) for d in dispatches} == {(job_id, 1), (other, 1)}
    assert rig.until(job_id, "assigned")["attempt"] == 1


def test_the_message_id_is_the_id_when_there_is_none(rig: Rig) -> None:
    job_id = str(uuid.uuid4())
    body = json.dumps({"token": rig.token, "command": ["hostname"]}).encode()
    for _ in range(2):
        rig.publish(body, message_id=job_id)
    assert rig.until(job_id, "assigned")["attempt"] == 1


def test_a_wrong_field_is_named(rig: Rig, run: Callable[..., str], tmp_path: Path) -> None:
    wrong = program(tmp_path, "submit.py", **{'"nodes": 1': '"node": 1', 'get("cluster")': 'get("error")'})
    assert "invalid unknown field 'node'" in run(sys.executable, wrong)
    # The next good one is served.
    assert "assigned blue" in run(sys.executable, program(tmp_path, "submit.py"))


# -- amqp-tools -----------------------------------------------------------------------------------------------


def _publish(run: Callable[..., str], url: str, body: dict[str, Any], *more: str) -> None:
    target = ("--url", url, "--exchange", "rainbow.submit", "--routing-key", "submit", "--persistent")
    run("amqp-publish", *target, "--content-type", "application/json", *more, input=json.dumps(body))


def test_amqp_publish(rig: Rig, run: Callable[..., str]) -> None:
    needs("amqp-publish", "amqp-tools")
    job_id = str(uuid.uuid4())
    _publish(run, rig.broker_url, {"id": job_id, "token": rig.token, "command": ["hostname"]})
    assert take(rig)["id"] == job_id


def test_amqp_publish_with_the_token_in_a_header(rig: Rig, run: Callable[..., str]) -> None:
    needs("amqp-publish", "amqp-tools")
    job_id = str(uuid.uuid4())
    header = f"authorization: Bearer {rig.token}"
    _publish(run, rig.broker_url, {"id": job_id, "command": ["hostname"]}, "--header", header)
    assert take(rig)["id"] == job_id


def test_amqp_consume_gets_the_answer(rig: Rig, run: Callable[..., str], tmp_path: Path) -> None:
    needs("amqp-consume", "amqp-tools")
    queue = f"answers-{uuid.uuid4().hex[:8]}"
    consume = ["amqp-consume", "--url", rig.broker_url, "--queue", queue, "--exclusive", "--count", "1", "cat"]
    with open(tmp_path / "answer.json", "wb") as out:
        consumer = subprocess.Popen(consume, stdout=out, stderr=subprocess.DEVNULL)
        try:
            # The queue is exclusive, so nobody else can look whether it is there: ask until an answer arrives.
            def answered() -> bool:
                _publish(run, rig.broker_url, {"token": rig.token, "command": "true", "nodes": 99}, "--reply-to", queue)
                return consumer.poll() is not None

            eventually(answered, 30, every=0.3)
        finally:
            consumer.kill()
            consumer.wait()
    answer = json.loads((tmp_path / "answer.json").read_text())
    assert answer["status"] == "no-match"
    assert answer["reasons"]["blue"]["code"] == "too-few-nodes"


# -- Go -----------------------------------------------------------------------------------------------------


def test_go(rig: Rig, run: Callable[..., str], tmp_path: Path) -> None:
    if shutil.which("go") is None or not (GO_PATH / "src/github.com/rabbitmq/amqp091-go").is_dir():
        pytest.skip("needs Go and amqp091-go (Debian: golang-go golang-github-rabbitmq-amqp091-go-dev)")
    source = program(tmp_path, "submit.go")
    build = {"GO111MODULE": "off", "GOPATH": str(GO_PATH), "GOCACHE": str(tmp_path / "cache"), "GOFLAGS": ""}
    subprocess.run(
        ["go", "build", "-o", "submit", source], cwd=tmp_path, env={**os.environ, **build}, check=True, timeout=200
    )
    answer = json.loads(run(str(tmp_path / "submit")))
    assert (answer["status"], answer["cluster"]) == ("assigned", "blue")
    assert take(rig)["id"] == answer["id"]


# -- every field of the contract --------------------------------------------------------------------------------


def test_every_field_is_taken(rig: Rig) -> None:
    """All fields of the simple form at once, and what becomes of each."""
    rig.rpc.call({"op": "group-set", "group": "@all", "clusters": ["blue"]})
    job_id = str(uuid.uuid4())
    answer = rig.submit(
        version=1,
        id=job_id,
        tokens=[rig.issue("bob", clusters=("blue",)), "not.a.token"],
        command=["sh", "-c", "exit 0"],
        nodes=2,
        tasks=4,
        cores_per_task=2,
        gpus_per_task=0,
        duration="90s",
        cwd="/tmp",
        environment={"GREETING": "hello"},
        requires=[],
        name="everything",
        image="docker.io/library/debian",
        clusters=["@all"],
        match={"name": "match", "options": {}},
        selection={"name": "first", "options": {}},
        satisfy_only=False,
        hold=1,
        priority=20,
        expires="2099-01-01T00:00:00Z",
    )
    assert (answer["id"], answer["status"], answer["cluster"]) == (job_id, "assigned", "blue")
    dispatch = take(rig)
    assert (dispatch["name"], dispatch["image"], dispatch["priority"]) == ("everything", "docker.io/library/debian", 20)
    assert dispatch["expires_at"] == 4070908800.0
    system = dispatch["jobspec"]["attributes"]["system"]
    assert (system["duration"], system["cwd"], system["environment"]) == (90, "/tmp", {"GREETING": "hello"})


@pytest.mark.parametrize("jobspec", ["text", "object"])
def test_a_jobspec_as_text_or_object(rig: Rig, jobspec: str) -> None:
    document = {
        "version": 1,
        "resources": [{"type": "slot", "count": 1, "label": "task", "with": [{"type": "core", "count": 2}]}],
        "tasks": [{"command": ["hostname"], "slot": "task", "count": {"per_slot": 1}}],
        "attributes": {"system": {"duration": 60}},
    }
    answer = rig.submit(jobspec=document if jobspec == "object" else json.dumps(document))
    assert answer["status"] == "assigned"


def test_satisfy_only_hold_and_expires(rig: Rig) -> None:
    assert rig.submit(command="hostname", satisfy_only=True)["status"] == "satisfied"
    assert rig.submit(command="hostname", nodes=99, hold=60)["status"] == "held"
    assert rig.submit(command="hostname", expires=1)["status"] == "expired"
    assert rig.submit(command="hostname", selection="nonsense")["status"] == "invalid"
    assert rig.submit(command="hostname", token="nonsense")["status"] == "denied"
