"""Our own agent, workers, client and command line, each entering a RabbitMQ that only tokens open."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest

from rainbow import topology
from rainbow.errors import BadCredentials, Denied
from rainbow.security.tokens import KeyRing
from rainbow_agents.agent import Agent
from rainbow_agents.registration import enrollment
from security.doors import Door, get, outcome, publish
from security.guarded import Guarded, Stream
from servers import wait_until

Make = Callable[..., Guarded]


@pytest.fixture
def make(door: Door, redis_url: str, redis_prefix: str, tmp_path: Path) -> Iterator[Make]:
    made: list[Guarded] = []

    def making(**scheduler: Any) -> Guarded:
        made.append(Guarded(door, redis_url, redis_prefix, tmp_path, **scheduler))
        return made[-1]

    yield making
    for one in made:
        one.close()


def test_everything_works_with_tokens_alone(make: Make) -> None:
    """Register, run, follow, cancel, drain, delete: nobody has an account at the broker."""
    rainbow = make()
    rainbow.agent("blue")
    alice, admin = rainbow.door.token("submit", "blue", sub="alice"), rainbow.door.token("admin")
    with rainbow.client(alice) as client:
        record = client.submit(command=["echo", "hello"]).wait(60)
        assert (record.state, record.output) == ("completed", "hello\n")
    done = rainbow.cli("submit", "--wait", "--json", "echo", "hi", token=alice)
    assert json.loads(done.stdout)
    listed = json.loads(rainbow.cli("jobs", "--json", token=alice).stdout)
    assert len(listed["jobs"]) == 2
    rainbow.cli("cancel", listed["jobs"][0]["id"], token=alice)
    rainbow.cli("clusters", "drain", "blue", token=admin)
    assert json.loads(rainbow.cli("clusters", "--json", token=admin).stdout)["clusters"][0]["drained"]
    rainbow.cli("clusters", "delete", "blue", token=alice, code=3)


def test_a_submitter_of_one_cluster_gets_no_other(make: Make) -> None:
    rainbow = make()
    rainbow.agent("blue")
    rainbow.agent("red")
    with rainbow.client(rainbow.door.token("submit", "red", sub="bob")) as client:
        for _ in range(3):
            record = client.submit(command=["true"]).wait(60)
            assert (record.state, record.cluster) == ("completed", "red")
        refused = client.submit(command=["true"], clusters=["blue"])
        assert refused.wait(60).state == "no-match"


def test_a_wrong_key_stops_an_agent_and_a_client_at_once(make: Make) -> None:
    """No hot loop: the program ends with a plain word and an exit code."""
    rainbow = make()
    stranger = Door(rainbow.door.server, KeyRing.generate(), rainbow.door.vhost)
    agent = rainbow.agent("blue", stranger.token("register", "blue"), start=False)
    agent.start()
    assert agent.wait(30)
    agent.stop(5)
    assert isinstance(agent.failure, BadCredentials)
    assert agent.exit_code == 3
    assert stranger.token("register") not in str(agent.failure)
    with rainbow.client(stranger.token("submit")) as client, pytest.raises(BadCredentials, match="refused"):
        client.submit(command=["true"])
    rainbow.cli("jobs", token=stranger.token("submit"), code=3)


def test_an_agent_is_let_in_without_any_secret_being_mailed(make: Make) -> None:
    """It has a public pass, with which it can ask and nothing else; then its own identity, and an admin's word."""
    rainbow = make()
    door_pass = rainbow.cli("enroll", "pass").stdout.strip()
    assert outcome(rainbow.door, door_pass, publish(topology.CONTROL, "enroll")) == 0
    for refused in (publish(topology.CONTROL, "register"), publish(topology.SUBMIT, "submit"), get("rainbow.control")):
        assert outcome(rainbow.door, door_pass, refused) == 403
    settings = rainbow.agent_settings("blue", door_pass)
    said: list[str] = []
    results: list[Any] = []
    asking = threading.Thread(
        target=lambda: results.append(enrollment.enroll(settings, say=said.append, stop=threading.Event(), every=0.2)),
        daemon=True,
    )
    asking.start()
    wait_until(lambda: len(said) == 2, what="the code is shown")
    admin = rainbow.door.token("admin")
    (listed,) = json.loads(rainbow.cli("enroll", "list", "--json", token=admin).stdout)["enrollments"]
    assert listed["code"] in said[1]
    rainbow.cli("enroll", "approve", listed["code"], token=rainbow.door.token("submit"), code=3)
    rainbow.cli("enroll", "approve", listed["code"], token=admin)
    asking.join(30)
    assert results[0].cluster == "blue"
    agent = Agent(settings)
    rainbow.run("blue", agent)
    with rainbow.client(rainbow.door.token("submit")) as client:
        assert client.submit(command=["true"]).wait(60).state == "completed"


def test_tokens_are_renewed_without_a_gap(make: Make) -> None:
    """The agent's token lives 20 s: it is renewed and handed to RabbitMQ (update-secret) while jobs go on."""
    ttl, seconds = 20.0, 45.0
    rainbow = make(agent_token_ttl=ttl)
    agent = rainbow.agent("blue")
    first = agent.registrar.token()
    with rainbow.client(rainbow.door.token("submit", sub="alice", ttl=seconds + 300)) as client:
        stream = Stream(client)
        seen: set[str | None] = set()

        def watched() -> bool:
            seen.add(agent.registrar.token())
            assert agent.failure is None
            return stream.failure is not None or len(stream.ids) * 0.25 >= seconds * 0.8

        wait_until(watched, seconds * 2, every=0.2, what="jobs submitted while tokens are renewed")
        states = stream.end()
    assert set(states) == {"completed"}
    assert first in seen
    assert len(seen) >= seconds * 0.8 / ttl
    assert agent.parts is not None
    assert agent.parts.broker.status.reconnects == 0


def test_keys_rotate_under_load(own_door: Door, redis_url: str, redis_prefix: str, tmp_path: Path) -> None:
    """Twice, keeping one old key: first everybody meets the new key, then the first one is gone for good."""
    rainbow = Guarded(own_door, redis_url, redis_prefix, tmp_path, agent_token_ttl=20.0)
    try:
        _rotation(rainbow)
    finally:
        rainbow.close()


def signed_with(agent: Agent) -> str | None:
    token = agent.registrar.token()
    return jwt.get_unverified_header(token)["kid"] if token else None


def _rotation(rainbow: Guarded) -> None:
    agent = rainbow.agent("blue")
    old = rainbow.door.ring
    with rainbow.client(rainbow.door.token("submit", sub="alice")) as client:
        stream = Stream(client)
        wait_until(lambda: len(stream.ids) > 8, what="some jobs before")
        middle = rainbow.rotate(keep=1)
        wait_until(lambda: rainbow.service.ring() == middle, what="the workers sign with the new key")
        kid = middle.signing[0]
        wait_until(lambda: kid == signed_with(agent), 60, what="the agent has a token signed with the new key")
        at = len(stream.ids)
        wait_until(lambda: len(stream.ids) > at + 8, what="some jobs in between")
        states = stream.end()
    assert set(states) == {"completed"}

    new = rainbow.rotate(keep=1)
    assert new.key(old.signing[0]) is None
    wait_until(lambda: rainbow.service.ring() == new, what="the first key is dropped")
    with rainbow.client(rainbow.door.token("submit", sub="alice")) as client, pytest.raises((BadCredentials, Denied)):
        client.submit(command=["true"])
    fresh = Door(rainbow.door.server, new, rainbow.door.vhost)
    with rainbow.client(fresh.token("submit", sub="alice")) as client:
        assert client.submit(command=["true"]).wait(60).state == "completed"
