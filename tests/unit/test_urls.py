"""URLs that cannot be read are refused without being quoted, and none is shown with what is secret in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rainbow import settings
from rainbow.brokers import ConnectOptions, connect
from rainbow.errors import InvalidSettings
from rainbow.logs import redact as redact_text
from rainbow.security import scopes
from rainbow.urls import addresses, redact, split, usual
from rainbow_workers.stores import StoreOptions, open_store

SECRET = "hunter2"

UNREADABLE = [
    f"amqp://user:{SECRET}#x@127.0.0.1:1/v",
    f"amqp://user:{SECRET}/x@127.0.0.1:1/v",
    f"amqp://user:{SECRET}?x@127.0.0.1:1/v",
    f"amqp://user:a/{SECRET}@127.0.0.1:1/v",
    f"amqp://user:{SECRET}@[bad/v",
    f"amqp://user:{SECRET}\u2100@h/v",
    f"amqp://user:{SECRET}@127.0.0.1:99999/v",
    f"amqp://user:pw@127.0.0.1:{SECRET}/v",
    f"kombu+redis://:a#{SECRET}@h/0",
]


@pytest.mark.parametrize("url", UNREADABLE)
def test_unreadable(url: str, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(f"broker: {{url: '{url}'}}")
    for read in (
        lambda: split(url, "broker"),
        lambda: settings.load(file),
        lambda: connect(ConnectOptions(url)),
    ):
        with pytest.raises(InvalidSettings, match=r"the broker URL .* cannot be read") as caught:
            read()
        assert SECRET not in str(caught.value).replace(f"127.0.0.1:{SECRET}", "")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("amqp://me:hunter2@host:1/v", "amqp://me:***@host:1/v"),
        ("amqp://me@host/v", "amqp://me@host/v"),
        ("redis://:hunter2@h/0", "redis://:***@h/0"),
        ("redis://h/0", "redis://h/0"),
        ("redis://h/0?password=hunter2", "redis://h/0?***"),
        ("redis://h/0?password=hunter2@x", "redis://***@x"),
        ("amqp://u:hunter2#x@h", "amqp://u:***@h"),
        ("amqp://u:x@hunter2@h", "amqp://u:***@h"),
        ("user:hunter2@h/v", "***@h/v"),
        ("amqp:user:hunter2@h/v", "***@h/v"),
        ("unix:///run/redis.sock", "unix:///run/redis.sock"),
        ("memory://name", "memory://name"),
        ("amqp://u:hunter2@a:1,b:2/v", "amqp://u:***@a:1,b:2/v"),
        ("amqp://u:hunter2@a/v,amqp://w:hunter2@b/v", "amqp://u:***@a/v,amqp://w:***@b/v"),
        ("amqp://a/v,amqp://b/v", "amqp://a/v,amqp://b/v"),
        ("amqp://u:hun,amqp://ter2@b/v", "amqp://u:***@b/v"),
        ("", ""),
    ],
)
def test_shown(url: str, shown: str) -> None:
    assert redact(url) == shown


@pytest.mark.parametrize(
    ("url", "one_each"),
    [
        ("amqp://u:p@a/v", ["amqp://u:p@a/v"]),
        ("amqp://u:p@a:1,b,[::1]:2/v", ["amqp://u:p@a:1/v", "amqp://u:p@b/v", "amqp://u:p@[::1]:2/v"]),
        ("amqp://a/v, amqps://b/v", ["amqp://a/v", "amqps://b/v"]),
        ("amqp://u:p,w@a/v,w", ["amqp://u:p,w@a/v,w"]),
        ("kombu+redis://a,b/0", ["kombu+redis://a,b/0"]),
        ("redis+sentinel://a,b:1/main/0", ["redis+sentinel://a/main/0", "redis+sentinel://b:1/main/0"]),
    ],
)
def test_several_addresses(url: str, one_each: list[str]) -> None:
    assert addresses(url, "broker") == one_each


@pytest.mark.parametrize(
    "url",
    [
        f"amqp://u:{SECRET}@a,,b/v",
        f"amqp://u:{SECRET}@a,/v",
        f"amqp://u:{SECRET}@a:x,b/v",
        f"amqp://u:{SECRET}@a/v,amqp://",
        f"amqp://u:{SECRET}@a/v,redis://b/0",
        f"amqp://u:{SECRET}@a/v,amqp://u:{SECRET}@b/other",
        [f"amqp://u:{SECRET}@a/v", ""],
        [f"amqp://u:{SECRET}@a/v", 3],
        [],
    ],
)
def test_a_malformed_list(url: str | list[object], tmp_path: Path) -> None:
    """One plain error before anything is tried, and no secret in it."""
    file = tmp_path / "c.json"
    file.write_text(json.dumps({"broker": {"url": url}}))
    with pytest.raises(InvalidSettings) as caught:
        connect(ConnectOptions(settings.load(file).broker.url.get_secret_value()))
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_list_in_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("broker: {url: ['amqp://u:one@a/v', 'amqp://u:two@b/v']}")
    loaded = settings.load(file)
    assert loaded.broker.url.get_secret_value() == "amqp://u:one@a/v,amqp://u:two@b/v"
    assert {"one", "two"} <= set(settings.secrets(loaded))
    assert scopes.vhost_of(loaded.broker.url.get_secret_value()) == "v"


@pytest.mark.parametrize(
    "text",
    [
        f"cannot reach amqp://u:{SECRET}@h",
        f"cannot reach amqp://u:{SECRET}/x@h now",
        f'{{"url":"redis://:{SECRET}#@h","b":1}}',
        f"redis://h/0?db=1&password={SECRET}&x=1",
        f"Bearer {SECRET}",
        f"token_eyJhbGciOiJI.{SECRET}.x",
    ],
)
def test_in_a_text(text: str) -> None:
    assert SECRET not in redact_text(text)
    assert ('"b":1}' in redact_text(text)) == ('"b":1}' in text)


@pytest.mark.parametrize("value", ["*hunter2", "!hunter2 x", "!!hunter2 x", "!h!hunter2 x", "&hunter2 *hunter22"])
def test_yaml_that_takes_a_secret_for_something_else(value: str, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(f"token: {value}\n")
    with pytest.raises(InvalidSettings, match="not YAML") as caught:
        settings.load(file)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "unix://:supersecret/var/run/redis.sock",
        "amqp://me:super@secret@host/v",
        "amqp://me:p@super/secret@host/v",
        "amqp://me:super#secret@host/v",
        "redis://:supersecret#1@host/0",
        "redis://:super/secret@host/0",
        "amqp://me:supersecret@host:port/v",
    ],
)
def test_no_part_of_a_url_that_cannot_be_read_is_shown(url: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        split(url, "broker")
    assert "super" not in str(refused.value)
    assert "secret" not in str(refused.value)
    assert "percent-encode" in str(refused.value)


@pytest.mark.parametrize(
    ("url", "usually"),
    [
        ("valkey://u:p@h/0", "redis://u:p@h/0"),
        ("valkeys://h/0", "rediss://h/0"),
        ("valkey+sentinel://a,b/main/0", "redis+sentinel://a,b/main/0"),
        ("pyamqp://a/v", "amqp://a/v"),
        ("pyamqp://a/v,amqp://b/v", "amqp://a/v,amqp://b/v"),
        ("amqp://u:valkey://@a/v", "amqp://u:valkey://@a/v"),
    ],
)
def test_other_spellings_of_a_scheme(url: str, usually: str, tmp_path: Path) -> None:
    assert usual(url) == usually
    file = tmp_path / "c.json"
    file.write_text(json.dumps({"store": {"url": url}}))
    if "://@" not in url:
        assert settings.load(file).store.url.get_secret_value() == usually


@pytest.mark.parametrize("url", ["sentinel://h/x/0", "redis+sentinel://h/x/0"])
def test_sentinel_is_for_the_store(url: str) -> None:
    with pytest.raises(InvalidSettings, match=r"serves the store \(store.url\)"):
        connect(ConnectOptions(url))
    if url.startswith("sentinel"):
        with pytest.raises(InvalidSettings, match=r"redis\+sentinel://HOST:PORT"):
            open_store(StoreOptions(url))
