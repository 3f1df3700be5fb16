"""The real programs, each a process of its own, with `broker.oauth` on: they enter a RabbitMQ that the test started
itself and that only tokens open. Nobody has an account there."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from processes import Site
from rainbow.client import Client
from rainbow.errors import RainbowError
from rainbow.security.tokens import KeyRing
from rainbow.settings import load
from rig import resources
from security.doors import Door, log_in
from servers import wait_until

#: Time to live of an agent's token and for how long it is watched, in seconds: `RAINBOW_TEST_RENEWAL=60:600`.
RENEWAL = tuple(float(part) for part in os.environ.get("RAINBOW_TEST_RENEWAL", "20:60").split(":"))

MakeSite = Callable[..., Site]


def behind(door: Door, folder: Path, redis_url: str, prefix: str, **scheduler: Any) -> Site:
    return Site(
        folder,
        door.open_url,
        redis_url,
        prefix,
        ring=door.ring,
        vhost=door.vhost,
        broker={"url": door.open_url, "oauth": True},
        scheduler={"retry_after": 1.0, **scheduler},
    )


@pytest.fixture
def make(door: Door, redis_url: str, redis_prefix: str, tmp_path: Path) -> Iterator[MakeSite]:
    made: list[Site] = []

    def making(**scheduler: Any) -> Site:
        made.append(behind(door, tmp_path, redis_url, redis_prefix, **scheduler))
        return made[-1]

    yield making
    for site in made:
        site.__exit__()


@contextmanager
def client(site: Site, sub: str, **more: Any) -> Iterator[Client]:
    with Client(settings=load(site.settings_of(sub, **more), {}), timeout=60) as made:
        yield made


def answers(made: Client) -> bool:
    try:
        return bool(made.ping(timeout=2.0))
    except RainbowError:
        return False


def started(site: Site, *clusters: str, **agent: Any) -> None:
    """Scheduler and agents run, and the scheduler knows them."""
    site.scheduler()
    with client(site, "root", role="admin") as admin:
        wait_until(lambda: answers(admin), 90, what="the scheduler answers")
        for cluster in clusters:
            site.agent(cluster, resources(nodes=16, host=cluster), report_every=1.0, **agent)
        wait_until(lambda: sum(c.alive for c in admin.clusters()) == len(clusters), 90, what="the agents run")


def connections(door: Door) -> set[tuple[str, ...]]:
    """User, process and time of each connection to the broker in the door's vhost."""
    found = door.server.ctl("list_connections", "user", "connected_at", "vhost", "peer_port")
    rows = [tuple(line.split("\t")) for line in found.splitlines()]
    return {row for row in rows if door.vhost in row}


def test_every_command_works_with_a_token_alone(door: Door, make: MakeSite, tmp_path: Path) -> None:
    """And each is refused to whom it does not belong, with exit code 3."""
    site = make()
    started(site, "blue", "red")
    alice = site.settings_of("alice")
    graph = tmp_path / "green.json"
    graph.write_text(json.dumps(resources(nodes=2, host="g")))

    def told(*args: str, config: Path | None = None) -> Any:
        return json.loads(site.cli(*args, "--json", config=config).stdout)

    # Submitting, following, ending.
    made = json.loads(site.cli("submit", "--json", "--wait", "true", config=alice).stdout)
    job = made["id"]
    assert told("status", job, config=alice)["state"] == "completed"
    assert told("wait", job, config=alice)
    assert told("jobs", config=alice)["jobs"]
    assert told("explain", job, config=alice)
    assert job in site.cli("watch", job, config=alice).stdout
    site.cli("cancel", job, config=alice)
    site.cli("status", job, config=site.settings_of("mallory"), code=5)
    site.cli("cancel", job, config=site.settings_of("mallory"), code=3)

    # A cluster by hand: with a token to register it, and what registering left.
    green = site.write(
        "green",
        {
            "broker": site.shared["broker"],
            "token": site.token("site", "register", "green"),
            "agent": {"state_dir": str(tmp_path / "green-state")},
        },
    )
    site.cli("register", "green", "--R", str(graph), "--save", config=green)
    site.cli("register", "violet", "--R", str(graph), config=green, code=3)
    site.cli("register", "green", "--R", str(graph), config=alice, code=3)
    waiting = json.loads(site.cli("submit", "--json", "-C", "green", "true", config=alice).stdout)["id"]
    wait_until(lambda: told("receive", "green", config=green)["waiting"], 30, what="the job waits for green")
    assert told("receive", "green", "--accept", "1", config=green)["accepted"] == [waiting]
    wait_until(lambda: told("status", waiting, config=alice)["state"] == "accepted", 30)

    # What could not be read: looked at, sent once more, dropped. Who submits may not see it.
    with closing(log_in(door, site.token("alice"))) as connection:
        for body in (b"{", b"[", b"nonsense"):
            connection.channel().basic_publish("rainbow.submit", "x", body)
    wait_until(lambda: len(told("dead", "list")["letters"]) == 3, 30, what="three dead letters")
    first, second, _ = (letter["key"] for letter in told("dead", "list")["letters"])
    assert told("dead", "show", first)["reason"] == "invalid"
    site.cli("dead", "replay", first)
    site.cli("dead", "drop", second)
    site.cli("dead", "list", config=alice, code=3)
    site.cli("dead", "drop", "--all", config=alice, code=3)

    # Administration.
    site.cli("clusters", "drain", "blue")
    site.cli("clusters", "resume", "blue")
    site.cli("groups", "set", "@ours", "blue", "green")
    assert told("groups")["groups"] == {"@ours": ["blue", "green"]}
    assert {c["name"] for c in told("clusters", config=alice)["clusters"]} == {"blue", "red", "green"}
    assert told("enroll", "list")["enrollments"] == []
    site.cli("broker", "setup")
    site.cli("clusters", "delete", "green")
    for command in (
        ("clusters", "drain", "blue"),
        ("groups", "set", "@ours", "red"),
        ("enroll", "list"),
        ("token", "revoke", "--sub", "root"),
        ("clusters", "delete", "blue"),
        ("broker", "setup"),
    ):
        site.cli(*command, config=alice, code=3)
    assert "problem" not in site.cli("doctor", config=alice).stdout

    site.cli("token", "revoke", "--sub", "alice")
    wait_until(lambda: _denied(site, alice), 5, what="alice is out")
    assert all(p.poll() is None for p in site.running), site.logs()


def _denied(site: Site, config: Path) -> bool:
    try:
        site.cli("jobs", config=config, code=3)
    except AssertionError:
        return False
    return True


def test_strangers_stop_with_a_word_and_a_code(make: MakeSite, tmp_path: Path) -> None:
    """Scheduler, agent and command line with a key that RabbitMQ does not know: no hot loop, exit code 3."""
    site = make()
    started(site)
    stranger = KeyRing.generate()
    keys = tmp_path / "strange.json"
    stranger.save(keys)
    own, site.ring = site.ring, stranger
    try:
        scheduler = site.start(
            "strange-scheduler",
            "rainbow_workers.cli",
            config=site.write("strange", {**site.shared, "keyring": str(keys)}),
        )
        agent = site.agent("blue")
        assert scheduler.wait(60) == 3
        assert agent.wait(60) == 3
        refused = site.cli("jobs", config=site.settings_of("eve"), code=3)
    finally:
        site.ring = own
    assert "refused" in refused.stderr
    for name in ("strange-scheduler", "agent-blue"):
        last = (tmp_path / f"{name}.log").read_text().splitlines()[-1]
        assert "refused" in last
        assert "password or token" in last


def _steady(door: Door, site: Site, seconds: float, ttl: float) -> None:
    """Jobs for `seconds`, one after the other; the agent's connection is the same from beginning to end."""
    own = {c for c in connections(door) if c[0] == "agent-blue"}
    assert own
    with client(site, "alice") as alice:
        begun = time.monotonic()
        took: list[float] = []
        while time.monotonic() < begun + seconds:
            at = time.monotonic()
            record = alice.submit(command=["true"]).wait(30)
            assert record.state == "completed"
            took.append(time.monotonic() - at)
            time.sleep(0.1)
    assert {c for c in connections(door) if c[0] == "agent-blue"} == own
    assert max(took) < ttl / 2, sorted(took)[-3:]
    log = (site.folder / "agent-blue.log").read_text()
    assert log.count("the token is to be renewed") >= seconds * 0.8 / ttl
    assert "refused" not in log
    assert "lost" not in log
    starts = Counter(job for job, _ in site.starts(["blue"]))
    assert len(starts) == len(took)
    assert set(starts.values()) == {1}


@pytest.mark.timeout(60 + 4 * RENEWAL[1])
def test_an_agent_renews_its_token_without_a_gap(door: Door, make: MakeSite) -> None:
    """No job is late or starts twice, and RabbitMQ sees one connection, though its token ran out several times."""
    ttl, seconds = RENEWAL
    site = make(agent_token_ttl=ttl)
    started(site, "blue")
    _steady(door, site, seconds, ttl)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_agent_with_a_token_of_a_minute_runs_for_ten(door: Door, make: MakeSite) -> None:
    site = make(agent_token_ttl=60.0)
    started(site, "blue")
    _steady(door, site, 600.0, 60.0)


def test_keys_rotate_twice_under_load_and_every_job_runs_once(
    own_door: Door, redis_url: str, redis_prefix: str, tmp_path: Path
) -> None:
    """Hundreds of jobs are submitted while the keys of all programs and of RabbitMQ are exchanged, and again."""
    with behind(own_door, tmp_path, redis_url, redis_prefix, agent_token_ttl=20.0) as site:
        started(site, "blue", "red")
        ids: list[str] = []
        for _ in range(2):
            _rotate(own_door, site, lambda: ids.extend(_submitted(site, 60)))
            ids.extend(_submitted(site, 20))
        with client(site, "root", role="admin") as admin:
            records = admin.wait(ids, timeout=120)
        odd = [r for r in records if r.state != "completed"]
        assert not odd, (odd[:2], site.logs())
        starts = Counter(job for job, _ in site.starts(["blue", "red"]))
        assert {starts[i] for i in ids} == {1}
        assert len(starts) == len(ids) == 2 * (5 * 60 + 20)
        assert all(p.poll() is None for p in site.running), site.logs()


def _submitted(site: Site, count: int) -> list[str]:
    with client(site, "alice") as alice:
        return [job.id for job in alice.submit_many([{"command": ["true"]} for _ in range(count)])]


def _rotate(door: Door, site: Site, load_on: Callable[[], None]) -> None:
    """As an operator does, with jobs between the steps and none waited for."""
    advanced = str(Path(door.server.folder) / "advanced.config")

    def tell_broker() -> None:
        site.cli("broker", "setup", "--oauth-config", advanced, "--dry-run")
        door.server.eval(site.cli("broker", "reload-keys", advanced).stdout.strip())

    before = site.ring.signing[0]
    load_on()
    site.cli("token", "rotate", "--prepare")
    load_on()
    tell_broker()
    load_on()
    site.cli("token", "rotate", "--keep", "2")
    site.ring = KeyRing.load(site.folder / "keys.json")
    assert site.ring.signing[0] != before
    load_on()
    tell_broker()
    load_on()
