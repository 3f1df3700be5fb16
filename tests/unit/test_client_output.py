"""Reading output piece by piece, against a transcript that grows."""

from __future__ import annotations

from typing import Any

import pytest

from rainbow.client import output as module
from rainbow.client.output import pieces
from rainbow.errors import TimedOut
from rainbow.models.requests import Output


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SOON", 0.001)
    monkeypatch.setattr(module, "LATER", 0.002)


class Source:
    """Gives one answer after the other, and keeps what it was asked."""

    def __init__(self, *answers: Output) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[int, int]] = []

    def __call__(self, *, stdout: int, stderr: int) -> Output:
        self.asked.append((stdout, stderr))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def piece(stdout: str = "", upto: int = 0, **more: Any) -> Output:
    return Output(id="j", attempt=more.pop("attempt", 1), stdout=stdout, stdout_next=upto, **more)


def test_without_following_all_there_is_and_no_more() -> None:
    source = Source(piece("ab", 2, more=True), piece("cd", 4))
    assert [p.stdout for p in pieces(source, False, None)] == ["ab", "cd"]
    assert source.asked == [(0, 0), (2, 0)]


def test_following_ends_with_the_job() -> None:
    source = Source(piece("a", 1), piece("", 1), piece("b", 2, stderr="!", stderr_next=1), piece("c", 3, ended=True))
    assert "".join(p.stdout for p in pieces(source, True, None)) == "abc"
    assert source.asked == [(0, 0), (1, 0), (1, 0), (2, 1)] or source.asked[-1] == (2, 1)


def test_a_job_that_runs_anew_is_read_from_its_beginning() -> None:
    source = Source(piece("abc", 3), piece("", 3, attempt=2), piece("xy", 2, attempt=2, ended=True))
    assert [p.stdout for p in pieces(source, True, None) if p.stdout] == ["abc", "xy"]
    assert source.asked[-1] == (0, 0)


def test_the_recorded_end_is_shown_where_nothing_else_is() -> None:
    gone = piece("the end", source="tail", ended=True, detail="gone")
    assert [p.stdout for p in pieces(Source(gone), True, None)] == ["the end"]
    # Not once more after the pieces themselves.
    shown = list(pieces(Source(piece("the end", 7), gone), True, None))
    assert [p.stdout for p in shown] == ["the end", ""]
    assert shown[-1].detail == "gone"


def test_a_limit_on_following() -> None:
    with pytest.raises(TimedOut):
        list(pieces(Source(piece("a", 1)), True, 0.05))
