"""Commands about jobs as they are now: jobs, status, explain, cancel."""

from __future__ import annotations

from typing import Annotated

import typer

from rainbow.cli import output, records
from rainbow.cli.options import Config, JobId, JobIds, Json, Limit, Token
from rainbow.cli.session import client

_STATES = (
    "submitted, held, assigned, rejected, accepted, running, completed, failed, cancelled, "
    "no-match, unsatisfiable, denied, invalid, expired, lost"
)


def jobs(
    state: Annotated[str | None, typer.Option("--state", "-s", metavar="STATE", help=f"One of: {_STATES}.")] = None,
    cluster: Annotated[str | None, typer.Option("--cluster", "-C", metavar="NAME", help="Only this cluster's.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, max=10_000, help="At most so many.")] = 100,
    as_json: Json = False,
    config: Config = None,
    token: Token = None,
    timeout: Limit = 30.0,
) -> None:
    """List the newest jobs, newest first.

    You see the jobs of your tokens' subjects; with an administrator's token, all.

    \b
    Example:
      rainbow jobs --state running --cluster blue
    """
    if state is not None and state not in _STATES.split(", "):
        raise typer.BadParameter(f"no state {state!r}: choose one of {_STATES}")
    with client(config, token, timeout) as rainbow:
        found = rainbow.jobs(state=state, cluster=cluster, limit=limit)
    if as_json:
        output.document({"jobs": [records.plain(record) for record in found]})
    else:
        records.table(found)


def status(
    job: JobId,
    as_json: Json = False,
    config: Config = None,
    token: Token = None,
    timeout: Limit = 30.0,
) -> None:
    """Show what is known of a job: its state, where it went, when, and the end of its output.

    \b
    Example:
      rainbow status 6f1c1f7e-3f0e-4c56-9a53-2f1f0f6c8a11
    """
    with client(config, token, timeout) as rainbow:
        record = rainbow.job(job).status()
    if as_json:
        output.document(records.plain(record))
    else:
        records.details(record)


def explain(
    job: JobId,
    as_json: Json = False,
    config: Config = None,
    token: Token = None,
    timeout: Limit = 30.0,
) -> None:
    """Say why a job went where it went: what was decided, what stood against each other cluster, all that happened.

    \b
    Example:
      rainbow explain 6f1c1f7e-3f0e-4c56-9a53-2f1f0f6c8a11
    """
    from rainbow.cli import explanation

    with client(config, token, timeout) as rainbow:
        record = rainbow.job(job).status()
    if as_json:
        output.document(explanation.document(record))
    else:
        explanation.show(record)


def cancel(
    ids: JobIds,
    reason: Annotated[str, typer.Option("--reason", help="Kept with the job.")] = "cancelled by its user",
    as_json: Json = False,
    config: Config = None,
    token: Token = None,
    timeout: Limit = 30.0,
) -> None:
    """Ask for jobs to end. It is noted durably; asking again is harmless, and a job that ended stays as it is.

    \b
    Example:
      rainbow cancel 6f1c1f7e-3f0e-4c56-9a53-2f1f0f6c8a11
    """
    with client(config, token, timeout) as rainbow:
        answers = rainbow.cancel(ids, reason=reason)
    if as_json:
        output.document({"jobs": [a and {"id": a.id, "state": a.state} for a in answers]})
    for job_id, answer in zip(ids, answers, strict=True):
        if answer is None:
            output.note(f"rainbow: no job {job_id} (or it is another user's)")
        elif not as_json:
            output.line(f"{answer.id}  {answer.state}")
    if None in answers:
        raise typer.Exit(5)
