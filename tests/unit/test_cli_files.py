"""The settings file as commands change it; key=value words; the mark of a place."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from rainbow.cli import files
from rainbow.cli.values import flat_file, pairs, seconds, typed
from rainbow.client.identity import identity
from rainbow.errors import InvalidInput, InvalidSettings

TEXT = """\
# at the top
broker:
  url: amqp://h/v   # where

  heartbeat: 5

# about the clusters
clusters:
- name: blue
  token: old

# at the end
log_level: info
"""


def changed(path: Path, **sections: Any) -> str:
    files.change(path, lambda _: sections)
    return path.read_text()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "rainbow-config.yaml"
    file.write_text(TEXT)
    return file


def test_only_the_section_changes(path: Path) -> None:
    text = changed(path, clusters=[{"name": "red", "token": "new"}])
    assert text == TEXT.replace("- name: blue\n  token: old", "- name: red\n  token: new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_new_section_comes_last(path: Path) -> None:
    path.write_text(TEXT.rstrip("\n"))
    assert changed(path, token="abc") == TEXT + "token: abc\n"


def test_a_file_that_is_not_there_is_made(tmp_path: Path) -> None:
    assert changed(tmp_path / "new.yaml", token="abc") == "token: abc\n"


@pytest.mark.parametrize(
    "text",
    [
        '{"broker": {"url": "amqp://h/v"}, "token": "old"}',
        "{broker: {url: 'amqp://h/v'}, token: old}\n",
        "---\n? broker\n: {url: 'amqp://h/v'}\n? token\n: old\n",
        "broker: {url: 'amqp://h/v'}\n'token': >\n old\n...\n",
    ],
)
def test_whatever_form_it_has_its_content_stays(path: Path, text: str) -> None:
    path.write_text(text)
    assert yaml.safe_load(changed(path, token="new")) == {"broker": {"url": "amqp://h/v"}, "token": "new"}


def test_values_that_yaml_could_misread(path: Path) -> None:
    value = {"name": "no", "secret": "1e3", "keys": {"20260101": "0x1f", "a: b": "#c"}}
    assert yaml.safe_load(changed(path, cluster=value))["cluster"] == value


def test_what_cannot_be_read_is_not_overwritten(path: Path) -> None:
    path.write_text("a: [1\n")
    with pytest.raises(InvalidSettings, match="not YAML"):
        changed(path, token="x")
    assert path.read_text() == "a: [1\n"


def test_a_failure_leaves_the_old_file_and_no_litter(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fdopen", full)
    with pytest.raises(OSError, match="No space"):
        changed(path, token="x")
    assert path.read_text() == TEXT
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_many_at_once_lose_nothing(path: Path) -> None:
    """Ten registrations save into one file at the same moment."""

    def save(n: int) -> None:
        def add(old: dict[str, Any]) -> dict[str, Any]:
            return {"clusters": [*old["clusters"], {"name": f"c{n}", "token": "t"}]}

        files.change(path, add)

    threads = [threading.Thread(target=save, args=(n,)) for n in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = {c["name"] for c in yaml.safe_load(path.read_text())["clusters"]}
    assert names == {"blue", *(f"c{n}" for n in range(10))}


# -- words -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-2.5", -2.5),
        ("1e3", 1000.0),
        ("true", True),
        ("false", False),
        ("True", "True"),
        ("inf", "inf"),
        ("nan", "nan"),
        ("", ""),
        ("'1'", "1"),
        ('"true"', "true"),
        ("batch", "batch"),
        ("1_000", 1000),
    ],
)
def test_typed(text: str, value: object) -> None:
    assert typed(text) == value
    assert type(typed(text)) is type(value)


def test_pairs() -> None:
    assert pairs(["a=1", "b=x=y", "c="], "--env") == {"a": "1", "b": "x=y", "c": ""}
    for wrong in ("a", "=1", ""):
        with pytest.raises(InvalidInput, match="--env"):
            pairs([wrong], "--env")


def test_lengths_of_time() -> None:
    assert seconds("30d", "--ttl") == 30 * 86400
    with pytest.raises(InvalidInput, match="--ttl 'soon' is no length of time"):
        seconds("soon", "--ttl")


@pytest.mark.parametrize("text", ["[1]", "a: [1]", "a: {b: 1}", "1: 2", "a: null", "a: [", "\ud800"])
def test_files_of_flat_values(tmp_path: Path, text: str) -> None:
    file = tmp_path / "state"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(InvalidInput, match="state"):
        flat_file(file)
    file.write_text('{"a": 1, "b": 2.5, "c": true, "d": "x"}')
    assert flat_file(file) == {"a": 1, "b": 2.5, "c": True, "d": "x"}


# -- the mark of a place -------------------------------------------------------------------------------------


def test_a_place_has_one_mark(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    marks: list[str] = []
    threads = [threading.Thread(target=lambda: marks.append(identity(folder))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(marks)) == 1
    assert len(marks[0]) == 32
    assert identity(folder) == marks[0] == (folder / "identity").read_text().strip()
    assert stat.S_IMODE((folder / "identity").stat().st_mode) == 0o600
    assert [p.name for p in folder.iterdir()] == ["identity"]


def test_a_place_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidSettings, match="file"):
        identity(tmp_path / "file" / "state")
