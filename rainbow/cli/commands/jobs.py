"""Commands about jobs as they are now: jobs, status, explain, cancel."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from rainbow.cli import completion
from rainbow.cli.options import Config, JobId, Json, Limit, SomeJobIds, Token
from rainbow.cli.render import output, records
from rainbow.cli.session import client
from rainbow.cli.watching import Watch, repeated

States = Annotated[
    list[str] | None,
    typer.Option(
        "--state",
        "-s",
        metavar="STATE",
        help="Only jobs in this state (or active, ended); may be repeated.",
        autocompletion=completion.states,
    ),
]
OfClusters = Annotated[
    list[str] | None,
    typer.Option(
        "--cluster",
        "-C",
        metavar="NAME",
        help="Only jobs of this cluster; may be repeated.",
        autocompletion=completion.clusters,
    ),
]
Users = Annotated[
    list[str] | None, typer.Option("--user", "-u", metavar="USER", help="Only jobs of this user; may be repeated.")
]
Name = Annotated[str | None, typer.Option("--name", metavar="PATTERN", help="Only jobs with such a name (* and ?).")]
Since = Annotated[
    str | None, typer.Option("--since", metavar="WHEN", help="Only jobs submitted since: 2h, 3d, or a date and time.")
]
Sort = Annotated[
    str | None, typer.Option("--sort", metavar="[-]FIELD", help="Sort by a field of --format; - reverses.")
]
OfArray = Annotated[str | None, typer.Option("--array", metavar="ID", help="Only the elements of this array.")]


def jobs(
    state: States = None,
    cluster: OfClusters = None,
    user: Users = None,
    name: Name = None,
    since: Since = None,
    array: OfArray = None,
    sort: Sort = None,
    form: Annotated[
        str | None,
        typer.Option("--format", "-o", metavar="TEXT", help="A line for each job, as '{id} {state:<10} {runtime}'."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print ids only.")] = False,
    count: Annotated[bool, typer.Option("--count", help="Print how many jobs are in each state.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, max=100_000, help="At most so many.")] = 100,
    before: Annotated[
        str | None, typer.Option("--before", metavar="POSITION", help="Go on where another list ended (its `next`).")
    ] = None,
    every: Watch = None,
    as_json: Json = False,
    config: Config = None,
    token: Token = None,
    timeout: Limit = 30.0,
) -> None:
    """List the newest jobs, newest first.

    You see the jobs of your tokens' subjects; with an administrator's token, all. Jobs are looked through page by
    page, until there are enough. Fields of --format and --sort: id, index, short, name, state, cluster, attempt, user,
    flux_id, returncode, code, detail, age, submitted, started, ended, runtime.

    \b
    Examples:
      rainbow jobs --state running --cluster blue
      rainbow jobs --since 2h --state failed --format '{short} {name:<20} {detail}'
    """
    from rainbow.cli import joblist
    from rainbow.cli.jobids import resolve

    wanted = joblist.choice(state, cluster, user, name, since)
    show = joblist.formatter("{id}" if form is None else form) if quiet or form is not None else None
    put = (output.document if every is None else output.json_line) if as_json else None

    def draw() -> None:
        if count:
            records.count(joblist.counted(job for _, job in wanted.walk(rainbow, before)), put)
            return
        found, after = wanted.find(rainbow, limit, before)
        found = joblist.ordered(found, sort) if sort else found
        if put:
            put({"jobs": [records.plain(r) for r in found], "more": after is not None, "next": after})
            return
        records.lines(found, show) if show else records.table(found)
        if after is not None:
            output.note(f"there are more: go on with --before {after}, or see more with --limit")
        if not found and cluster and not before:
            joblist.warn_of_strangers(rainbow, wanted)

    with client(config, token, timeout) as rainbow:
        wanted = replace(wanted, array=resolve(rainbow, [array])[0]) if array is not None else wanted
        repeated(draw, every)


def status(
    job: JobId,
    jobspec: Annotated[
        bool, typer.Option("--jobspec", help="Print what was submitted, as JSON, in place of its state.")
    ] = False,
    as_json: Json = False,
    config: Config = None,
    token: Token = None,
    timeout: Limit = 30.0,
) -> None:
    """Show what is known of a job: its state, where it went, when, and the end of its output.

    \b
    Examples:
      rainbow status 6f1c1f7e-3f0e-4c56-9a53-2f1f0f6c8a11
      rainbow status 6f1c1f7e-3f0e-4c56-9a53-2f1f0f6c8a11 --jobspec
    """
    from rainbow.cli.jobids import resolve

    with client(config, token, timeout) as rainbow:
        chosen = resolve(rainbow, [job])[0]
        if jobspec:
            output.document(rainbow.jobspec(chosen))
            return
        record = rainbow.job(chosen).status()
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
    from rainbow.cli.jobids import resolve
    from rainbow.cli.render import explanation

    with client(config, token, timeout) as rainbow:
        record = rainbow.job(resolve(rainbow, [job])[0]).status()
        queue = rainbow.queue(record.id) if record.state == "held" else None
    if as_json:
        output.document({**explanation.document(record), "waits": queue})
    else:
        explanation.show(record)
        if queue is not None:
            explanation.show_waiting(record, queue)


def cancel(
    ids: SomeJobIds = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All jobs that you may see and that have not ended.")
    ] = False,
    state: States = None,
    cluster: OfClusters = None,
    user: Users = None,
    name: Name = None,
    since: Since = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show which jobs would be cancelled.")] = False,
    reason: Annotated[str, typer.Option("--reason", help="Kept with the job.")] = "cancelled by its user",
    as_json: Json = False,
    config: Config = None,
    token: Token = None,
    timeout: Limit = 30.0,
) -> None:
    """Ask for jobs to end: those named (- reads ids from standard input), or all that the options choose.

    The request is durable. Asking again is harmless, and a job that ended stays as it is.

    \b
    Examples:
      rainbow cancel 6f1c1f7e-3f0e-4c56-9a53-2f1f0f6c8a11
      rainbow cancel --cluster blue --name 'sweep-*'
    """
    from rainbow.cli import joblist
    from rainbow.cli.jobids import resolve

    wanted = joblist.choice(state, cluster, user, name, since)
    if bool(ids) == bool(everything or wanted):
        raise typer.BadParameter("give either ids, or --all or what chooses jobs (--state, --cluster, --name, ...)")
    with client(config, token, timeout) as rainbow:
        if ids:
            chosen = resolve(rainbow, ids)
        else:
            chosen = [record.id for _, record in wanted.walk(rainbow) if not record.terminal]
        if dry_run or not chosen:
            output.document({"jobs": [{"id": i} for i in chosen]}) if as_json else _would(chosen)
            return
        answers = rainbow.cancel(chosen, reason=reason)
    if as_json:
        output.document({"jobs": [a and {"id": a.id, "state": a.state} for a in answers]})
    for job_id, answer in zip(chosen, answers, strict=True):
        if answer is None:
            output.note(f"rainbow: no job {job_id} (or it is another user's)")
        elif not as_json:
            output.line(f"{answer.id}  {_asked(answer.state)}")
    if None in answers:
        raise typer.Exit(5)


def _asked(state: str) -> str:
    from rainbow.models.job import TERMINAL

    return (
        f"has ended before: {state}"
        if state in TERMINAL and state != "cancelled"
        else ("cancelled" if state == "cancelled" else f"cancel requested ({state})")
    )


def _would(ids: list[str]) -> None:
    for job_id in ids:
        output.line(job_id)
    if not ids:
        output.note("no jobs to cancel")
