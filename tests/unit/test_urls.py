"""URLs that cannot be read are refused without being quoted, and none is shown with what is secret in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rainbow import settings
from rainbow.brokers import ConnectOptions, connect
from rainbow.errors import InvalidSettings
from rainbow.logs import redact as redact_text
from rainbow.urls import redact, split

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
        ("", ""),
    ],
)
def test_shown(url: str, shown: str) -> None:
    assert redact(url) == shown


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
