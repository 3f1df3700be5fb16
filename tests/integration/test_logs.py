"""What a job wrote, fetched through its cluster's agent."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentrig import Agents, shell
from rainbow.client import Client
from rainbow.errors import Denied, NotFound
from rainbow_workers.service import ServiceOptions
from rig import Rig, eventually


@pytest.fixture(params=["memory", "servers"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    name = uuid.uuid4().hex
    options = ServiceOptions(alive_after=4.0)
    if request.param == "memory":
        made = Rig(f"memory://{name}", f"memory://{name}", options=options)
    else:
        url, prefix = request.getfixturevalue("redis_url"), request.getfixturevalue("redis_prefix")
        made = Rig(request.getfixturevalue("amqp_url"), url, prefix=prefix, options=options)
    with made as rig:
        yield rig


def client_of(rig: Rig, user: str = "alice") -> Client:
    return Client(broker=rig.connect(f"client {user}"), token=rig.issue(user), timeout=15)


def test_a_job_is_followed_while_it_writes(rig: Rig, agents: Agents, tmp_path: Path) -> None:
    agents.start(executor="local")
    script = f"echo first; echo bad >&2; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; echo läst"
    answer = rig.submit(jobspec=shell(script))
    seen: list[str] = []
    errors: list[str] = []
    with client_of(rig) as client:

        def read() -> None:
            for piece in client.job(answer["id"]).logs(follow=True, timeout=60):
                assert piece.source == "job"
                seen.append(piece.stdout)
                errors.append(piece.stderr)

        reader = threading.Thread(target=read)
        reader.start()
        eventually(lambda: "".join(seen) == "first\n" and "".join(errors) == "bad\n")
        (tmp_path / "go").touch()
        reader.join(60)
        assert not reader.is_alive()
        assert "".join(seen) == "first\nläst\n"
        assert "".join(errors) == "bad\n"
        # And once more, all at once, when it is over.
        assert "".join(p.stdout for p in client.logs(answer["id"])) == "first\nläst\n"


def test_long_output_comes_in_pieces(rig: Rig, agents: Agents) -> None:
    agents.start(executor="local", options={"output_bytes": 1_000_000})
    answer = rig.submit(jobspec=shell("seq 1 90000"))
    rig.until(answer["id"], "completed", 60)
    with client_of(rig) as client:
        found = list(client.logs(answer["id"]))
    assert len(found) > 1
    assert "".join(p.stdout for p in found) == "".join(f"{n}\n" for n in range(1, 90001))


def test_bytes_that_are_no_text_come_as_they_were(rig: Rig, agents: Agents) -> None:
    agents.start(executor="local")
    answer = rig.submit(jobspec=shell(r"printf '\033[31m\377\000\302\251\n\n'; printf 'gr\374n' >&2"))
    rig.until(answer["id"], "completed", 60)
    with client_of(rig) as client:
        found = list(client.logs(answer["id"]))
    assert b"".join(p.stdout_bytes for p in found) == b"\033[31m\xff\0\xc2\xa9\n\n"
    assert b"".join(p.stderr_bytes for p in found) == b"gr\xfcn"
    assert "".join(p.stderr for p in found) == "gr\ufffdn"


def test_what_is_not_kept_any_more_is_counted(rig: Rig, agents: Agents) -> None:
    agents.start(executor="local", options={"output_bytes": 1000})
    answer = rig.submit(jobspec=shell("seq 1 1000"))
    rig.until(answer["id"], "completed", 60)
    whole = "".join(f"{n}\n" for n in range(1, 1001))
    with client_of(rig) as client:
        found = list(client.logs(answer["id"]))
    text = "".join(p.stdout for p in found)
    assert text
    assert found[0].stdout_skipped == len(whole) - len(text)
    assert whole.endswith(text)
    assert [p.stdout_skipped for p in found[1:]] == [0] * (len(found) - 1)


def test_only_who_submitted_it_and_an_admin_see_it(rig: Rig, agents: Agents) -> None:
    started = agents.start(executor="local")
    answer = rig.submit(jobspec=shell("echo private"))
    rig.until(answer["id"], "completed", 60)
    with client_of(rig, "mallory") as other, pytest.raises(NotFound):
        list(other.logs(answer["id"]))
    rig_agent = Client(broker=rig.connect("as the agent"), token=started.registrar.token(), timeout=15)
    with rig_agent, pytest.raises(Denied):
        list(rig_agent.logs(answer["id"]))
    admin = Client(broker=rig.connect("admin"), token=rig.issue("root", "admin"), timeout=15)
    with admin:
        assert [p.stdout for p in admin.logs(answer["id"])] == ["private\n"]


def test_the_recorded_end_where_the_cluster_is_gone(rig: Rig, agents: Agents) -> None:
    agent = agents.start(executor="local")
    answer = rig.submit(jobspec=shell("echo kept"))
    rig.until(answer["id"], "completed", 60)
    agent.stop()
    with client_of(rig) as client:
        begun = time.monotonic()
        [piece] = client.logs(answer["id"])
        # At once or within a call's limit: never for as long as the agent is away.
        assert time.monotonic() - begun < 15
        assert (piece.source, piece.stdout, piece.ended) == ("tail", "kept\n", True)
        assert piece.detail


def test_a_job_that_has_not_started_has_written_nothing(rig: Rig) -> None:
    rig.register("by-hand")
    answer = rig.submit(jobspec=shell("true"))
    with client_of(rig) as client:
        [piece] = client.logs(answer["id"])
        assert (piece.source, piece.stdout, piece.detail) == ("tail", "", "it has not started yet")
        with pytest.raises(NotFound):
            list(client.logs(str(uuid.uuid4())))
