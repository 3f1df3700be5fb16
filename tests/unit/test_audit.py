"""The audit log: one JSON object a line, private, rotating, without secrets."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from rainbow.security import tokens
from rainbow.security.tokens import KeyRing
from rainbow_workers.audit import Audit

RING = KeyRing.generate()
WHO = tokens.verify(RING, tokens.issue(RING, sub="alice", role="submit", ttl=60))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_says_who_did_what_with_which_result(tmp_path: Path) -> None:
    path = tmp_path / "log" / "audit.jsonl"
    audit = Audit(path, clock=lambda: 1000.5)
    audit.note(WHO, "cancel", ["a", "b"])
    audit.note(None, "delete", "blue", "denied", "no token")
    audit.close()
    assert lines(path) == [
        {
            "time": 1000.5,
            "sub": "alice",
            "jti": WHO.jti,
            "role": "submit",
            "action": "cancel",
            "object": ["a", "b"],
            "result": "done",
        },
        {
            "time": 1000.5,
            "sub": None,
            "jti": None,
            "role": None,
            "action": "delete",
            "object": "blue",
            "result": "denied",
            "detail": "no token",
        },
    ]
    assert path.stat().st_mode & 0o777 == 0o600


def test_it_goes_on_in_the_same_file_after_a_restart(tmp_path: Path) -> None:
    for number in range(3):
        audit = Audit(tmp_path / "a")
        audit.note(WHO, "submit", str(number))
        audit.close()
    assert [e["object"] for e in lines(tmp_path / "a")] == ["0", "1", "2"]


def test_it_rotates_and_keeps_so_many(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "a", max_bytes=1000, keep=2)
    for number in range(40):
        audit.note(WHO, "submit", str(number))
    audit.close()
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == ["a", "a.1", "a.2"]
    kept = [int(e["object"]) for name in ("a.2", "a.1", "a") for e in lines(tmp_path / name)]
    assert kept == list(range(kept[0], 40))
    assert all(p.stat().st_size <= 1000 and p.stat().st_mode & 0o777 == 0o600 for p in tmp_path.iterdir())


def test_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    Audit(Path("-")).note(WHO, "submit", "x")
    assert json.loads(capsys.readouterr().out)["object"] == "x"


def test_off_is_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Audit(None).note(WHO, "submit", "x")
    assert capsys.readouterr().out == ""


def test_what_looks_like_a_secret_is_taken_out(tmp_path: Path) -> None:
    token = tokens.issue(RING, sub="a", role="submit", ttl=60)
    audit = Audit(tmp_path / "a")
    audit.note(WHO, "register", token, "denied", f"Bearer {token} at amqp://u:hunter2@h")
    audit.close()
    text = (tmp_path / "a").read_text()
    assert token not in text
    assert "hunter2" not in text
    assert lines(tmp_path / "a")[0]["object"] == "***"


def test_lines_stay_lines(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "a")
    audit.note(WHO, "submit", 'x\n{"forged": true}\r\u2028')
    audit.close()
    assert len((tmp_path / "a").read_text().split("\n")) == 2


def test_a_disk_that_takes_nothing_stops_no_work(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    audit = Audit(Path("/dev/full"))
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            audit.note(WHO, "submit", "x")
    audit.close()
    assert [r.message for r in caplog.records] == ["audit log not written"]
