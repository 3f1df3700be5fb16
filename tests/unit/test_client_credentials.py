"""Which token speaks where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rainbow.client.credentials import Credentials, peek
from rainbow.errors import Denied, InvalidSettings
from rainbow.security import tokens
from rainbow.settings import Settings

RING = tokens.KeyRing.generate()


def token(role: tokens.Role, sub: str = "me") -> str:
    return tokens.issue(RING, sub=sub, role=role, ttl=60)


def held(only: str | None = None, **settings: Any) -> Credentials:
    return Credentials.from_settings(Settings.model_validate(settings), only)


def listed(**named: str) -> list[dict[str, str]]:
    return [{"name": name, "token": value} for name, value in named.items()]


def test_one_given_speaks_for_everything() -> None:
    c = held("given", token="own", clusters=listed(blue="b"), cluster={"name": "blue", "secret": "s"})
    assert c.for_submission() == c.for_submission(["red"]) == c.for_jobs() == c.for_clusters() == ["given"]
    assert c.for_cluster("blue") == c.for_broker() == "given"


def test_a_submission_carries_the_tokens_of_all_clusters_or_of_those_named() -> None:
    own, blue, red = token("submit"), token("submit", "b"), token("submit", "r")
    c = held(token=own, clusters=listed(blue=blue, red=red))
    assert c.for_submission() == [own, blue, red]
    assert c.for_submission(["red"]) == [own, red]
    assert c.for_submission(["elsewhere"]) == [own]
    c = held(clusters=listed(blue=blue, red=red))
    assert c.for_submission(["red"]) == [red]
    with pytest.raises(Denied, match="no token for green: there is one for blue, red"):
        c.for_submission(["green"])


@pytest.mark.parametrize("role", ["register", "agent"])
def test_a_token_that_opens_nothing_there_does_not_travel(role: tokens.Role) -> None:
    blue = token("submit", "b")
    assert held(token=token(role), clusters=listed(blue=blue)).for_submission() == [blue]


def test_the_same_token_twice_is_one() -> None:
    same = token("submit")
    assert held(clusters=listed(blue=same, red=same)).for_submission() == [same]


def test_jobs_are_looked_for_with_one_token_of_each_subject() -> None:
    a, b, again = token("submit", "a"), token("submit", "b"), token("submit", "b")
    agent = token("agent", "agent-blue")
    c = held(token=a, clusters=listed(x=b, y=again), cluster={"name": "blue", "secret": agent})
    assert c.for_jobs() == [a, b, agent]


def test_an_administrators_token_is_enough() -> None:
    admin = token("admin")
    c = held(token=admin, clusters=listed(x=token("submit", "b")))
    assert c.for_jobs() == c.for_clusters() == [admin]


def test_a_register_token_sees_clusters_and_no_jobs() -> None:
    register = token("register")
    assert held(token=register).for_clusters() == [register]
    with pytest.raises(Denied, match="RAINBOW_TOKEN"):
        held(token=register).for_jobs()


def test_a_cluster_is_administered_with_its_own_token_unless_one_is_more() -> None:
    agent, submit, admin = token("agent"), token("submit"), token("admin")
    cluster = {"name": "blue", "secret": agent}
    assert held(token=submit, cluster=cluster).for_cluster("blue") == agent
    assert held(token=admin, cluster=cluster).for_cluster("blue") == admin
    assert held(token=submit, cluster=cluster).for_cluster("red") == submit
    assert held(cluster=cluster).for_cluster("blue") == agent


def test_nothing_at_hand_says_where_to_get_it() -> None:
    for ask in ("for_submission", "for_jobs", "for_clusters", "for_cluster", "for_broker"):
        with pytest.raises(Denied, match="rainbow token issue"):
            getattr(held(), ask)()


def test_the_token_may_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")
    assert held(token_file=tmp_path / "token").own == "abc"
    (tmp_path / "token").write_text(" \n")
    with pytest.raises(InvalidSettings, match="empty"):
        held(token_file=tmp_path / "token")
    with pytest.raises(InvalidSettings, match="No such file"):
        held(token_file=tmp_path / "missing")
    assert held("given", token_file=tmp_path / "missing").for_jobs() == ["given"]


def test_tokens_do_not_show() -> None:
    assert "verysecret" not in repr(held("verysecret1", token="verysecret2", clusters=listed(x="verysecret3")))


@pytest.mark.parametrize("text", ["", "x", "a.b.c", "a.!!.c", "..", "a.W10.c", "a." + "A" * 5 + ".c", "ü.ü.ü"])
def test_peeking_at_what_is_no_token(text: str) -> None:
    assert peek(text) == {}


def test_peeking_reads_and_does_not_verify() -> None:
    made = token("submit", "alice")
    assert peek(made)["sub"] == "alice"
    assert peek(made[:-4] + "AAAA")["sub"] == "alice"
