"""Commands that need no broker: settings, tokens and keys; and how results are printed."""

from __future__ import annotations

import io
import json
import logging
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rainbow import settings
from rainbow.brokers.base import Delivery
from rainbow.cli import joblist
from rainbow.cli.render import output, records
from rainbow.client.dead_letters import Letter
from rainbow.errors import InvalidInput
from rainbow.models.job import JobRecord
from rainbow.security import signing, tokens
from rainbow.security.tokens import KeyRing
from rainbow_workers.dead_letters import letter as letter_of
from running import Shell, alone


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    alone(monkeypatch, tmp_path)
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)


@pytest.fixture
def sh(capsys: Any) -> Shell:
    return Shell(capsys)


# -- settings ------------------------------------------------------------------------------------------------


def test_init_writes_what_show_reads(sh: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAINBOW_KEYRING")
    said = sh("config init --broker amqp://me:hunter22@mq/rainbow --store redis://:hunter23@s/1 --keyring k/keys.json")
    assert "next: `rainbow broker setup`" in said.err
    file, ring = tmp_path / "rainbow-config.yaml", tmp_path / "k" / "keys.json"
    assert stat.S_IMODE(file.stat().st_mode) == stat.S_IMODE(ring.stat().st_mode) == 0o600
    assert tokens.KeyRing.load(ring)
    shown = sh("config show --json")
    assert shown.json["file"] == "rainbow-config.yaml"
    assert shown.json["settings"]["broker"]["url"] == "amqp://me:***@mq/rainbow"
    assert shown.json["settings"]["keyring"] == str(ring)
    text = sh("config show").out
    assert yaml.safe_load(text)["broker"]["url"] == "amqp://me:***@mq/rainbow"
    assert "hunter2" not in text + shown.out


def test_init_never_overwrites_unasked_and_never_a_key_ring(sh: Shell, tmp_path: Path) -> None:
    sh("config init --keyring keys.json")
    ring = (tmp_path / "keys.json").read_bytes()
    (tmp_path / "rainbow-config.yaml").write_text("token: mine\n")
    assert "--force" in sh("config init --keyring keys.json", code=1).err
    assert (tmp_path / "rainbow-config.yaml").read_text() == "token: mine\n"
    made = sh("config init --keyring keys.json --force --json").json
    assert made["keyring_made"] is False
    assert "mine" not in (tmp_path / "rainbow-config.yaml").read_text()
    assert (tmp_path / "keys.json").read_bytes() == ring
    (tmp_path / "keys.json").chmod(0o644)
    assert "chmod 600" in sh("config init --keyring keys.json --force", code=2).err


def test_init_for_all_folders_is_found_from_everywhere(
    sh: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sh("config init --user --broker memory://mine")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert sh("config show --json").json["settings"]["broker"]["url"] == "memory://mine"


def test_config_may_stand_before_or_after_the_command(sh: Shell, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("log_level: debug\n")
    for line in ("--config a.yaml config show --json", "config show --config a.yaml --json"):
        assert sh(line).json["settings"]["log_level"] == "debug"
    assert "rainbow config init" in sh("config show --config missing.yaml", code=2).err


def test_secrets_of_every_kind_are_hidden(sh: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = {
        "token": "hunter20",
        "clusters": [{"name": "a", "token": "hunter21"}],
        "cluster": {"name": "a", "secret": "hunter22", "keys": {"k": "hunter23"}},
        "scheduler": {"secret": "hunter24"},
    }
    (tmp_path / "rainbow-config.yaml").write_text(yaml.safe_dump(secrets))
    monkeypatch.setenv("RAINBOW_STORE_URL", "redis://u:hunter25@h/0")
    assert "hunter2" not in sh("config show").out + sh("config show --json").out


def test_a_file_that_is_wrong_is_one_line(sh: Shell, tmp_path: Path) -> None:
    (tmp_path / "rainbow-config.yaml").write_text("colour: red\n")
    for line in ("config show", "submit hostname", "doctor"):
        said = sh(line, code=None)
        assert said.code == (1 if line == "doctor" else 2)
        assert "unknown field 'colour'" in said.out + said.err


# -- tokens ----------------------------------------------------------------------------------------------------


@pytest.fixture
def ring(sh: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("RAINBOW_KEYRING")
    sh("config init --broker memory://x --keyring keys.json")
    return tmp_path / "keys.json"


def test_issue_show_verify(sh: Shell, ring: Path, tmp_path: Path) -> None:
    token = sh("token issue --role submit --sub alice --cluster blue --cluster @gpu --ttl 2h").out.strip()
    who = tokens.verify(tokens.KeyRing.load(ring), token)
    assert (who.sub, who.role, who.clusters) == ("alice", "submit", frozenset({"blue", "@gpu"}))
    assert 7100 < who.expires_at - time.time() <= 7200
    shown = sh(f"token show {token}")
    assert "alice" in shown.out
    assert token.rpartition(".")[2] not in shown.out + sh(f"token show {token} --json").out
    (tmp_path / "token").write_text(token)
    assert sh("token verify @token --json").json["sub"] == "alice"
    assert "alice may submit on @gpu blue" in sh(f"token verify {token}").out


def test_a_token_may_come_through_a_pipe(sh: Shell, ring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = sh("token issue").out
    monkeypatch.setattr(sys, "stdin", io.StringIO(token))
    sh("token verify -")


def test_saved_it_is_in_force(sh: Shell, ring: Path, tmp_path: Path) -> None:
    said = sh("token issue --role admin --sub root --save")
    assert said.out == ""
    assert sh("token verify --json").json["role"] == "admin"
    assert "broker" in yaml.safe_load((tmp_path / "rainbow-config.yaml").read_text())


def test_why_a_token_is_not_good(sh: Shell, ring: Path) -> None:
    token = sh("token issue").out.strip()
    assert "signature is wrong" in sh(f"token verify {token[:-6]}AAAAAA", code=3).err
    assert "is not a token" in sh("token verify nonsense", code=3).err
    assert "not a token" in sh("token show nonsense", code=3).err
    old = tokens.issue(tokens.KeyRing.load(ring), sub="x", role="submit", ttl=5, now=time.time() - 3600)
    assert "ran out" in sh(f"token verify {old}", code=3).err
    other = tokens.issue(tokens.KeyRing.generate(), sub="x", role="submit", ttl=5)
    assert "a key this rainbow does not know" in sh(f"token verify {other}", code=3).err
    assert "none in the settings" in sh("token verify", code=3).err
    said = sh(f"token verify {other} --json", code=3)
    assert said.json["error"]["code"] == "denied"


def test_rotating_keeps_old_tokens_good_for_a_while(sh: Shell, ring: Path) -> None:
    first = sh("token issue").out.strip()
    rotated = sh("token rotate --json").json
    assert rotated["dropped"] == []
    assert tokens.KeyRing.load(ring).signing[0] == rotated["signing"]
    sh(f"token verify {first}")
    assert "void" in sh("token rotate --keep 0").err
    sh(f"token verify {first}", code=3)
    sh(f"token verify {sh('token issue').out.strip()}")


def test_without_a_key_ring(sh: Shell) -> None:
    for line in ("token issue", "token rotate", "token verify x"):
        assert "rainbow config init" in sh(line, code=2).err
    sh("token issue --keyring missing.json", code=2)


@pytest.mark.parametrize(
    "line",
    ["--cluster 'x y'", "--cluster @", "--ttl soon", "--ttl 0", "--role king", "--sub ''", "--cluster a/b"],
)
def test_wrong_tokens_are_not_issued(sh: Shell, ring: Path, line: str) -> None:
    said = sh(f"token issue {line}", code=None)
    assert said.code == 2 or (line == "--sub ''" and said.code == 0)  # an empty subject is you


# -- printing --------------------------------------------------------------------------------------------------


def test_tables_are_plain_when_piped_and_drawn_on_a_terminal(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("blue", None, "x\x1b[31m\ny"), ("red", 1, "z")]
    output.table(("name", "n", "text"), rows, empty="none")
    assert capsys.readouterr().out == "NAME  N  TEXT\nblue  -  x [31m y\nred   1  z\n"

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    output.table(("name", "state"), [("blue", "completed"), ("[bold]red[/bold]", "failed")], empty="none")
    drawn = terminal.getvalue()
    assert "\x1b[32m" in drawn
    assert "[bold]red[/bold]" in drawn  # nobody's text is read as markup
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    job = "6f1c1f7e-3f0e-4c56-9a53-2f1f0f6c8a11"
    output.table(("id", "name", "detail"), [(job, None, "a long story " * 9)], empty="none")
    assert job in terminal.getvalue()
    assert "NAME" not in terminal.getvalue()


def test_an_empty_table_is_a_word_to_people(capsys: Any) -> None:
    output.table(("name",), [], empty="none")
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "none\n")


def test_times() -> None:
    now = time.time()
    assert output.age(now - 5) == "5s"
    assert output.age(now - 3600) == "60m"
    assert output.age(now - 3 * 3600) == "3h"
    assert output.age(now - 5 * 86400) == "5d"
    assert output.age(None) is output.age(0) is output.stamp(0) is None


# -- dead letters ------------------------------------------------------------------------------------------------


RING = KeyRing.generate()


def dead(body: bytes = b"{}", *, signed: bool = False, **headers: Any) -> Letter:
    if signed:
        text = signing.letter_text(headers, body)
        headers[signing.HEADER] = signing.sign(signing.letter_keys(RING), text)
    return Letter(Delivery("rainbow.dead", body, "application/json", headers=headers, message_id="m"), RING)


def test_a_letter_of_the_workers() -> None:
    letter = dead(
        json.dumps({"id": "1", "token": "***"}).encode(),
        signed=True,
        **{
            "rainbow-reason": "invalid",
            "rainbow-exchange": "rainbow.submit",
            "rainbow-routing-key": "submit",
            "rainbow-queue": "rainbow.scheduler",
            "rainbow-time": 12,
            "rainbow-bytes": 99,
            "kept": 1,
        },
    )
    assert (letter.reason, letter.queue, letter.at) == ("invalid", "rainbow.scheduler", 12.0)
    with pytest.raises(InvalidInput, match="lost its token"):
        letter.replay(None)
    again = letter.replay("mine")
    assert (again.exchange, again.routing_key, again.message_id) == ("rainbow.submit", "submit", "m")
    assert json.loads(again.body) == {"id": "1", "token": "mine"}
    assert again.headers == {"rainbow-replayed": 1}


def test_a_letter_of_the_broker() -> None:
    """Put aside by RabbitMQ itself (delivery limit): its history says where it was."""
    death = {
        "queue": "rainbow.scheduler",
        "reason": "delivery_limit",
        "exchange": "rainbow.submit",
        "routing-keys": ["submit"],
    }
    headers: dict[str, Any] = {"x-death": [death], "rainbow-signature": "k:abc", "CC": ["blue"], "colour": "red"}
    letter = dead(b"x", **headers)
    assert (letter.reason, letter.queue, letter.at) == ("delivery_limit", "rainbow.scheduler", None)
    again = letter.replay()
    assert (again.exchange, again.routing_key) == ("rainbow.submit", "submit")
    assert again.headers == {"rainbow-signature": "k:abc", "rainbow-replayed": 1}
    assert letter.history == ["delivery_limit in rainbow.scheduler"]


def test_a_letter_tells_what_it_was_through() -> None:
    """Also of what happened before the worker found it out, and of replays in vain."""
    deaths = [{"queue": "rainbow.jobs.blue", "reason": "expired", "count": 2}, {"queue": "q", "reason": "rejected"}]
    came = {"x-death": deaths, "x-delivery-count": 3, "rainbow-replayed": 2}
    made = letter_of(Delivery("rainbow.rejected", b"{}", exchange="rainbow.rejected", headers=came), "invalid", "no")
    letter = dead(made.body, signed=True, **(made.headers or {}))
    assert letter.history == [
        "replayed 2 times",
        "delivered 4 times",
        "expired in rainbow.jobs.blue, 2 times",
        "rejected in q",
    ]
    assert letter.reason == "invalid"
    assert letter.plain()["history"] == letter.history
    again = letter.replay(None)
    assert again.headers == {"rainbow-replayed": 3}


def test_letters_that_cannot_be_replayed() -> None:
    with pytest.raises(InvalidInput, match="prove which exchange"):
        dead().replay("t")
    with pytest.raises(InvalidInput, match="too long"):
        dead(b"x" * 10, signed=True, **{"rainbow-exchange": "e", "rainbow-bytes": 300_000}).replay("t")


def test_letters_are_told_apart() -> None:
    assert dead(b"1").key == dead(b"1").key
    assert dead(b"1").key != dead(b"2").key


def test_an_ended_job_ran_from_its_start_to_its_end() -> None:
    record = JobRecord(
        id="6f1c1f7e-3f0e-4c56-9a53-2f1f0f6c8a11", state="completed", times={"running": 10, "ended": 12.5}
    )
    assert records.run_time(record) == 2.5
    assert (joblist.formatter("{runtime} {ended}"))(record).startswith("2s 1970-01-01")


def test_settings_that_hide_those_of_the_instance_are_named(sh: Shell, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(settings, "DATA_DIR", tmp_path / "instance")
    (tmp_path / "instance").mkdir()
    (tmp_path / "instance" / settings.FILE_NAME).write_text("token: t\n")
    Path(settings.FILE_NAME).write_text("broker: {url: 'amqp://127.0.0.1:1/x'}\n")
    said = sh("jobs", code=3).err
    assert f"the settings in {settings.FILE_NAME} are in force, not those of `rainbow up`" in said
    assert f"export RAINBOW_CONFIG={tmp_path}/instance/{settings.FILE_NAME}" in said
    Path(settings.FILE_NAME).unlink()
    assert "in force" not in sh("jobs", code=4).err
