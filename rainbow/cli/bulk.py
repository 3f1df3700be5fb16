"""Submit many jobs from a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, BinaryIO, Protocol
from uuid import UUID, uuid4

import typer

from rainbow.cli import output
from rainbow.cli.options import Config, Json, Limit, Token
from rainbow.cli.session import connection, load_settings
from rainbow.errors import InvalidInput, RainbowError

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
    from rainbow.client.bulk import submit_lines

    settings = load_settings(config)
    run = run or uuid4()
    ids: list[str] = []
    refused: list[tuple[int, str]] = []
    last, count = skip, 0
    with _opened(file) as lines, connection(settings, "rainbow-cli", token, timeout) as link, _bar(file) as bar:
        credentials = link.credentials
        credentials.for_submission()  # without any token, nothing is read
        pieces = submit_lines(
            link,
            _counted(lines, bar),
            credentials.for_submission,
            run=run,
            skip=skip,
            max_bytes=settings.limits.message_bytes,
            timeout=timeout,
        )
        try:
            for piece in pieces:
                last = piece.last
                count += len(piece.ids)
                for number, why in piece.refused[: max(0, _SHOWN - len(refused))]:
                    output.note(f"line {number}: {why}")
                refused += piece.refused
                if as_json:
                    ids += piece.ids
                else:
                    sys.stdout.write("".join(f"{job_id}\n" for job_id in piece.ids))
        except RainbowError as exc:
            raise type(exc)(
                f"{exc}; {count} submitted, up to line {last}: go on with `rainbow bulk {file} --run {run} "
                f"--skip {last}`"
            ) from exc
    if as_json:
        output.document(
            {"run": str(run), "submitted": count, "ids": ids, "refused": [{"line": n, "error": e} for n, e in refused]}
        )
    else:
        output.note(f"{count} submitted" + (f", {len(refused)} lines could not be read" if refused else ""))
    if refused:
        raise typer.Exit(2)


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


class _Advance(Protocol):
    def __call__(self, done: int) -> None: ...


def _counted(lines: BinaryIO, advance: _Advance | None) -> Iterator[bytes]:
    """The lines, telling `advance` every so often how many bytes there were."""
    if advance is None:
        yield from lines
        return
    size = 0
    for number, line in enumerate(lines):
        size += len(line)
        if number % 1000 == 0:
            advance(size)
        yield line
    advance(size)


@contextmanager
def _bar(name: str) -> Iterator[_Advance | None]:
    """A progress bar on a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    import os

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("submitting", total=None if name == "-" else os.path.getsize(name))
        yield lambda done: progress.update(task, completed=done)
