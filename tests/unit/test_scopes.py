"""Scopes as text, and the configuration that makes RabbitMQ read them. What they open is in tests/security."""

from __future__ import annotations

import base64
import re
import time
from pathlib import Path

import pytest

from rainbow.errors import InvalidInput
from rainbow.security import oauth, scopes, tokens
from rainbow.security.tokens import KeyRing, Role

CONTROL = "rainbow.write:v/rainbow.control/*"


@pytest.mark.parametrize(
    ("role", "clusters", "expected"),
    [
        ("submit", ["blue"], [CONTROL, "rainbow.write:v/rainbow.submit/*"]),
        ("register", ["*"], [CONTROL]),
        (
            "agent",
            ["blue"],
            [
                CONTROL,
                "rainbow.read:v/rainbow.jobs.blue",
                "rainbow.read:v/rainbow.agent.blue",
                "rainbow.write:v/rainbow.events/job.blue.*",
            ],
        ),
        ("agent", ["@unknown"], [CONTROL]),
    ],
)
def test_what_follows_from_a_role(role: Role, clusters: list[str], expected: list[str]) -> None:
    assert scopes.for_token(role, clusters, "v") == expected


def test_only_admins_and_workers_reach_everything() -> None:
    for role in ("submit", "agent", "register"):
        assert not any("rainbow.*" in s for s in scopes.for_token(role, ["*"], "v"))
    assert not any("amq.default" in s for s in scopes.for_token("admin", ["*"], "v"))
    assert set(scopes.for_workers("v")) - set(scopes.for_token("admin", ["*"], "v")) == {"rainbow.write:v/amq.default"}


def test_no_scopes_without_a_vhost() -> None:
    assert scopes.for_token("admin", ["*"], None) == scopes.for_workers(None) == []


@pytest.mark.parametrize(
    ("url", "vhost"),
    [
        ("amqp://u:p@h:1/rainbow", "rainbow"),
        ("amqps://h", "/"),
        ("amqp://h/", "/"),
        ("amqp://h/%2Fa%2Fb", "/a/b"),
        ("redis://h/0", None),
        ("memory://x", None),
    ],
)
def test_the_vhost_of_a_url(url: str, vhost: str | None) -> None:
    assert scopes.vhost_of(url) == vhost


def test_a_vhost_cannot_widen_a_scope() -> None:
    for name in ("a/b", "a*b", "a b", "/"):
        for scope in scopes.for_token("submit", ["*"], name):
            assert scope.count("/") == 2
            assert scope.split("/")[0].count("*") == 0
            assert " " not in scope


# -- the configuration of RabbitMQ --------------------------------------------------------------------------


def test_every_key_is_in_both_forms() -> None:
    ring = KeyRing.generate().rotated()
    for form in ("3.10", "4.x"):
        text = oauth.render(ring, form)[oauth.ADVANCED]
        found = re.findall(r'<<"k">> => <<"([^"]+)">>', text)
        assert [base64.urlsafe_b64decode(k + "=" * (-len(k) % 4)) for k in found] == [key for _, key in ring.keys]
        assert '{algorithms, [<<"HS256">>]}' in text
    assert "signing_keys" not in oauth.render(ring, "4.x")[oauth.CONF]


def test_the_4x_form_speaks_ini() -> None:
    lines = oauth.render(KeyRing.generate(), "4.x")[oauth.CONF].splitlines()
    settings = dict(line.split(" = ") for line in lines if not line.startswith("#"))
    assert settings["auth_backends.2"] == "oauth2"
    assert settings["auth_oauth2.resource_server_id"] == tokens.AUDIENCE
    assert settings["auth_oauth2.scope_prefix"] + "read:" == scopes.for_token("agent", ["a"], "v")[1][:13]


def test_a_path_that_would_be_erlang() -> None:
    assert oauth.reload_command("/etc/rabbitmq/advanced.config")[0] == "eval"
    with pytest.raises(InvalidInput):
        oauth.reload_command('x"), halt(), ("')


def test_workers_make_their_own_password_anew_in_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ring = [KeyRing.generate()]
    password = oauth.worker_password(lambda: ring[0], "v", "workers")
    first = password()
    assert password() == first
    assert tokens.verify(ring[0], first).role == "admin"
    ring[0] = ring[0].rotated()
    second = password()
    assert second != first
    now = time.time()
    monkeypatch.setattr("rainbow.security.oauth.time.time", lambda: now + 301)
    assert password() != second
