"""The output of a job that is here, or was: a piece of each stream, bounded."""

from __future__ import annotations

import codecs
from base64 import b64encode

from rainbow.models.requests import Output, OutputAsk
from rainbow_agents.executors.base import Executor, ExecutorDown, KeepsOutput
from rainbow_agents.journal import Journal, JournalDown, Row


class OutputReader:
    def __init__(self, journal: Journal, executor: Executor) -> None:
        self._executor = executor
        self._journal = journal

    def read(self, ask: OutputAsk) -> Output:
        """What there is from where it is asked for. Where nothing is kept, `source` is ``tail`` and `detail` says why:
        what was recorded of the job's output is then all there is."""
        try:
            row = self._row(ask)
        except JournalDown as exc:
            return self._tail(ask, str(exc))
        if row is None or not row.handle:
            return self._tail(ask, "the job is not here", ended=row is None)
        ended = row.state not in ("taken", "accepted", "running")
        executor = self._executor
        if not isinstance(executor, KeepsOutput):
            return self._tail(ask, "this cluster keeps no output", ended=ended)
        try:
            piece = executor.output(row.held, ask.stdout, ask.stderr, ask.limit)
        except ExecutorDown as exc:
            return self._tail(ask, str(exc))
        if piece is None:
            return self._tail(ask, "its output is not kept any more", ended=ended)
        # More may come, so that a character that is cut in two waits for its other half.
        stdout, taken_out = _text(
            piece.stdout, last=piece.stdout_from + len(piece.stdout) >= piece.stdout_size and ended
        )
        stderr, taken_err = _text(
            piece.stderr, last=piece.stderr_from + len(piece.stderr) >= piece.stderr_size and ended
        )
        out_next, err_next = piece.stdout_from + taken_out, piece.stderr_from + taken_err
        more = out_next < piece.stdout_size or err_next < piece.stderr_size
        return Output(
            id=ask.id,
            attempt=ask.attempt,
            stdout=stdout,
            stderr=stderr,
            stdout_next=out_next,
            stderr_next=err_next,
            stdout_skipped=max(0, piece.stdout_from - ask.stdout) if ask.stdout >= 0 else 0,
            stderr_skipped=max(0, piece.stderr_from - ask.stderr) if ask.stderr >= 0 else 0,
            stdout_base64=_base64(piece.stdout[:taken_out], stdout),
            stderr_base64=_base64(piece.stderr[:taken_err], stderr),
            order=list(piece.order),
            notes=list(piece.notes),
            ended=ended and not more,
            more=more,
        )

    @staticmethod
    def _tail(ask: OutputAsk, why: str, *, ended: bool = False) -> Output:
        return Output(id=ask.id, attempt=ask.attempt, source="tail", ended=ended, detail=why)

    def _row(self, ask: OutputAsk) -> Row | None:
        return self._journal.look([(ask.id, ask.attempt)])[(ask.id, ask.attempt)].row


def _text(data: bytes, *, last: bool) -> tuple[str, int]:
    """The text of a piece, and how many of its bytes that is: all but a character cut short at its end."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data, final=last)
    left, _ = decoder.getstate()
    return text, len(data) - len(left)


def _base64(data: bytes, text: str) -> str | None:
    """The bytes for JSON where `text` has lost some of them."""
    return None if "\ufffd" not in text or text.encode() == data else b64encode(data).decode("ascii")
