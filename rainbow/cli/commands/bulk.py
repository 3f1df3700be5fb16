"""Submit many jobs from a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO
from uuid import UUID, uuid4

import typer

from rainbow.cli.options import Config, Json, Limit, Token
from rainbow.cli.render import output
from rainbow.cli.render.progress import bar
from rainbow.cli.session import connection, load_settings
from rainbow.errors import InvalidInput, RainbowError

if TYPE_CHECKING:
    from rainbow.client.bulk import Piece

#: As many lines that cannot be read are shown one by one.
_SHOWN = 20


def bulk(
    file: Annotated[str, typer.Argument(metavar="FILE.jsonl", help="A submission a line; - reads standard input.")],
    run: Annotated[
        UUID | None,
        typer.Option("--run", metavar="UUID", help="Send a file again as the same run: no job runs twice."),
    ] = None,
    skip: Annotated[int, typer.Option("--skip", min=0, metavar="LINES", help="Leave so many lines out.")] = 0,
    as_json: Json = False,
    config: Config = None,
    token: Token = None,
    timeout: Limit = 30.0,
) -> None:
    """Submit a job for each line of a file, with confirms. The ids are printed in the order of the lines.

    A line is a submission as it is published: `{"command": ["hostname"], "nodes": 2}`; the token is added. A line that
    cannot be read is reported, and the others are submitted: exit 2 then. If the broker goes away in the middle, the
    error says with which --run and --skip to go on.

    \b
    Example:
      rainbow bulk jobs.jsonl
    """
    with _opened(file) as lines, bar("submitting", _size(file)) as advance:
        send(
            _counted(lines, advance),
            None,
            config=config,
            token=token,
            timeout=timeout,
            as_json=as_json,
            run=run,
            skip=skip,
            again=f"rainbow bulk {file}",
        )


def send(
    lines: Iterable[bytes],
    total: int | None,
    *,
    config: Path | None,
    token: str | None,
    timeout: float,
    as_json: bool,
    run: UUID | None = None,
    skip: int = 0,
    again: str | None = None,
) -> None:
    """Submit each of `lines`, and print the ids in their order. Exit 2 if some cannot be read.

    Args:
        lines: submissions as JSON.
        total: how many there are, for a progress bar of this function's own; None draws none.
        config, token, timeout, as_json: as the options of commands.
        run: what ids are made of.
        skip: how many lines to leave out.
        again: the command that goes on where this ended in the middle.
    """
    from rainbow.client.bulk import submit_lines

    settings = load_settings(config)
    run = run or uuid4()
    done = _Done(skip)
    with (
        connection(settings, "rainbow-cli", token, timeout) as link,
        bar("submitting", total) if total is not None else nullcontext() as advance,
    ):
        credentials = link.credentials
        credentials.for_submission()  # without any token, nothing is read
        pieces = submit_lines(
            link,
            lines,
            credentials.for_submission,
            run=run,
            skip=skip,
            max_bytes=settings.limits.message_bytes,
            timeout=timeout,
        )
        try:
            for piece in pieces:
                done.add(piece, as_json)
                if advance is not None:
                    advance(done.count)
        except RainbowError as exc:
            on = f": go on with `{again} --run {run} --skip {done.last}`" if again else ""
            raise type(exc)(f"{exc}; {done.count} submitted, up to line {done.last}{on}") from exc
    if as_json:
        refused = [{"line": number, "error": why} for number, why in done.refused]
        output.document({"run": str(run), "submitted": done.count, "ids": done.ids, "refused": refused})
    else:
        unread = f", {len(done.refused)} lines could not be read" if done.refused else ""
        output.note(f"{done.count} submitted{unread}")
    if done.refused:
        raise typer.Exit(2)


@dataclass
class _Done:
    """What was submitted so far. `last` is the line up to which all are settled; ids are kept for JSON only."""

    last: int
    count: int = 0
    ids: list[str] = field(default_factory=list)
    refused: list[tuple[int, str]] = field(default_factory=list)

    def add(self, piece: Piece, as_json: bool) -> None:
        """Print the ids, or keep them for one document, and the first lines that could not be read."""
        self.last = piece.last
        self.count += len(piece.ids)
        for number, why in piece.refused[: max(0, _SHOWN - len(self.refused))]:
            output.note(f"line {number}: {why}")
        self.refused += piece.refused
        if as_json:
            self.ids += piece.ids
        elif piece.ids:
            output.result("\n".join(piece.ids))


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    if name == "-":
        yield sys.stdin.buffer
        return
    try:
        lines = open(name, "rb")  # noqa: SIM115 - closed below; what its user raises is not about this file
    except OSError as exc:
        raise InvalidInput(f"{name} cannot be read: {exc.strerror}") from None
    with lines:
        yield lines


def _counted(lines: BinaryIO, advance: Callable[[int], None]) -> Iterator[bytes]:
    """The lines, telling `advance` every so often how many bytes there were."""
    size = 0
    for number, line in enumerate(lines):
        size += len(line)
        if number % 1000 == 0:
            advance(size)
        yield line
    advance(size)


def _size(name: str) -> int | None:
    """Bytes of the file; None where that is not known."""
    try:
        return None if name == "-" else os.path.getsize(name)
    except OSError:  # opening it says what is wrong
        return None
