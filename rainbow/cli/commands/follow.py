"""Commands that stay until something happens: watch, wait and attach."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from rainbow.cli.jobids import resolve
from rainbow.cli.options import Config, JobId, JobIds, Json, SomeJobIds, Token, WaitLimit
from rainbow.cli.render import output, records
from rainbow.cli.render.progress import bar
from rainbow.cli.session import client, interruptible

if TYPE_CHECKING:
    from rainbow.models.job import JobRecord


def watch(
    ids: SomeJobIds = None,
    as_json: Json = False,
    config: Config = None,
    token: Token = None,
    timeout: WaitLimit = None,
) -> None:
    """Follow jobs, a line each time one changes, until all have ended.

    Without an id: those of your newest 100 jobs that have not ended. With --json, every line is a JSON document.

    \b
    Example:
      rainbow watch 6f1c1f7e-3f0e-4c56-9a53-2f1f0f6c8a11
    """
    with client(config, token) as rainbow:
        chosen = resolve(rainbow, ids) if ids else [record.id for record in rainbow.jobs() if not record.terminal]
        if not chosen:
            output.note("no jobs to follow: all have ended")
            return
        with interruptible(chosen):
            for record in rainbow.events(chosen, timeout=timeout):
                output.json_line(records.plain(record)) if as_json else output.line(records.line(record))


def wait(
    ids: JobIds,
    as_json: Json = False,
    config: Config = None,
    token: Token = None,
    timeout: WaitLimit = None,
) -> None:
    """Wait until all these jobs have ended (- reads ids from standard input).

    Exit 0 if all completed, 1 if one did not, 124 when time is up. On a terminal a bar shows how many have ended.

    \b
    Example:
      rainbow wait $(rainbow submit hostname) --timeout 60
    """
    from rainbow.client.elements import plain

    with client(config, token) as rainbow:
        chosen = resolve(rainbow, ids)
        last: dict[str, JobRecord] = {}
        with interruptible(chosen), bar("waiting", len(chosen)) as advance:
            for record in rainbow.events(chosen, timeout=timeout):
                last[record.id] = record
                advance(sum(1 for known in last.values() if known.terminal))
        ended = [last[job] for job in plain(chosen)]
    if as_json:
        output.document({"jobs": [records.plain(record) for record in ended]})
    else:
        for record in ended:
            output.line(records.line(record))
    raise typer.Exit(success(ended))


def attach(
    job: JobId,
    as_json: Json = False,
    config: Config = None,
    token: Token = None,
    timeout: WaitLimit = None,
) -> None:
    """Follow a job: print its output as it comes, and end with its exit code (128 + N for signal N).

    Ctrl-C leaves the job running. With --json the job's record is printed at the end in place of its output.

    \b
    Example:
      rainbow attach 6f1c1f7e-3f0e-4c56-9a53-2f1f0f6c8a11
    """
    from rainbow.cli.attach import exit_code, follow

    with client(config, token) as rainbow:
        job_id = resolve(rainbow, [job])[0]
        rainbow.job(job_id).status()  # raises NotFound
        with interruptible([job_id]):
            if as_json:
                ended = rainbow.wait([job_id], timeout)[0]
                output.document(records.plain(ended))
            else:
                ended = follow(rainbow, job_id, lambda record: None, timeout)
                if ended.state != "completed":
                    output.note(f"rainbow: {records.line(ended)}")
    raise typer.Exit(exit_code(ended))


def success(ended: Sequence[JobRecord]) -> int:
    """0 when all jobs completed, else 1."""
    return 0 if all(record.state == "completed" for record in ended) else 1
