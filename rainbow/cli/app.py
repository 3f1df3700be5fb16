"""The program's commands, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import typer
from typer.main import get_command

from rainbow.cli.lazy import Entry, LazyGroup, make_app
from rainbow.cli.options import Config
from rainbow.helptext import plain

#: What follows the command of a job belongs to the job: ``rainbow submit ls -l``.
_TAKES_COMMAND = {"allow_interspersed_args": False}

_COMMANDS: Mapping[str, Entry] = {
    "up": Entry(
        "rainbow.cli.commands.embedded:up", "Start everything on this machine: broker, store, scheduler, one agent."
    ),
    "down": Entry("rainbow.cli.commands.embedded:down", "Stop what `rainbow up` started; its data stays."),
    "demo": Entry("rainbow.cli.commands.embedded:demo", "Show the main job on this machine, start to end."),
    "submit": Entry("rainbow.cli.commands.submit:submit", "Submit a job.", _TAKES_COMMAND),
    "batch": Entry("rainbow.cli.commands.batch:batch", "Submit a batch script.", _TAKES_COMMAND),
    "bulk": Entry("rainbow.cli.commands.bulk:bulk", "Submit many jobs from a file."),
    "bulksubmit": Entry(
        "rainbow.cli.commands.bulksubmit:bulksubmit", "Submit a job for each input of a template.", _TAKES_COMMAND
    ),
    "jobs": Entry("rainbow.cli.commands.jobs:jobs", "List the newest jobs."),
    "status": Entry("rainbow.cli.commands.jobs:status", "Show what is known of a job."),
    "explain": Entry("rainbow.cli.commands.jobs:explain", "Say why a job went where it went, cluster by cluster."),
    "watch": Entry("rainbow.cli.commands.follow:watch", "Follow jobs as they change."),
    "wait": Entry("rainbow.cli.commands.follow:wait", "Wait until jobs have ended."),
    "attach": Entry("rainbow.cli.commands.follow:attach", "Follow a job's output, and end with its exit code."),
    "logs": Entry("rainbow.cli.commands.logs:logs", "Show what a job wrote."),
    "fetch": Entry("rainbow.cli.commands.fetch:fetch", "Bring home the files that a job left."),
    "cancel": Entry("rainbow.cli.commands.jobs:cancel", "Ask for jobs to end."),
    "satisfy": Entry("rainbow.cli.commands.satisfy:satisfy", "Match jobspecs with resource graphs offline."),
    "compat": Entry("rainbow.cli.commands.compat:compat", "Show what an image needs, and which clusters have it."),
    "clusters": Entry("rainbow.cli.commands.clusters:app", "List clusters; drain, resume or delete one."),
    "groups": Entry("rainbow.cli.commands.groups:app", "List groups of clusters, or set one."),
    "queue": Entry("rainbow.cli.commands.queue:queue", "Show who has jobs that wait and run."),
    "shares": Entry("rainbow.cli.commands.shares:app", "List shares of accounts and users, or set them."),
    "register": Entry("rainbow.cli.commands.register:register", "Register a cluster by its resource graph."),
    "subsystem": Entry("rainbow.cli.commands.subsystem:app", "Add or remove a cluster's subsystems (io, spack, ...)."),
    "state": Entry("rainbow.cli.commands.state:state", "Update a cluster's state by hand."),
    "receive": Entry("rainbow.cli.commands.receive:receive", "List and accept a cluster's waiting jobs by hand."),
    "top": Entry("rainbow.cli.commands.top:top", "Watch clusters, queues and rates."),
    "timeline": Entry("rainbow.cli.commands.timeline:timeline", "Draw when jobs waited and ran, cluster by cluster."),
    "web": Entry("rainbow.cli.commands.web:web", "Serve the web console and the HTTP API."),
    "dead": Entry("rainbow.cli.commands.dead:app", "List, show, replay or drop what could not be processed."),
    "enroll": Entry("rainbow.cli.commands.enroll:app", "Let agents in that have no token yet."),
    "token": Entry("rainbow.cli.commands.tokens:app", "Issue, show, verify, revoke tokens; rotate the keys."),
    "config": Entry("rainbow.cli.commands.config:app", "Make a settings file, or show the settings in force."),
    "broker": Entry("rainbow.cli.commands.broker:app", "Set up the message broker."),
    "doctor": Entry("rainbow.cli.commands.doctor:doctor", "Check everything, and say what to do."),
}


class _Commands(LazyGroup):
    table: ClassVar[Mapping[str, Entry]] = _COMMANDS


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        typer.echo(f"rainbow {version('rainbow-hpc')}")
        raise typer.Exit(0)


app = make_app(cls=_Commands, invoke_without_command=True, add_completion=True)


@app.callback()
def _rainbow(
    ctx: typer.Context,
    config: Config = None,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """One place to submit work, many Flux clusters to run it.

    \b
    Example:
      rainbow submit -N 2 --wait hostname
    """
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def command() -> Any:
    """The whole program as one command."""
    return plain(get_command(app))
