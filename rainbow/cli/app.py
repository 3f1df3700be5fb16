"""The program's commands, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import typer
from typer.main import get_command

from rainbow.cli.lazy import Entry, LazyGroup, make_app
from rainbow.cli.options import Config

#: What follows the command of a job belongs to the job: ``rainbow submit ls -l``.
_TAKES_COMMAND = {"allow_interspersed_args": False}

_COMMANDS: Mapping[str, Entry] = {
    "up": Entry("rainbow.cli.embedded:up", "Start everything on this machine: broker, store, scheduler, one agent."),
    "down": Entry("rainbow.cli.embedded:down", "Stop what `rainbow up` started; its data stays."),
    "demo": Entry("rainbow.cli.embedded:demo", "Show the main job on this machine, start to end."),
    "submit": Entry("rainbow.cli.submit:submit", "Submit a job.", _TAKES_COMMAND),
    "bulk": Entry("rainbow.cli.bulk:bulk", "Submit many jobs from a file."),
    "jobs": Entry("rainbow.cli.jobs:jobs", "List the newest jobs."),
    "status": Entry("rainbow.cli.jobs:status", "Show what is known of a job."),
    "explain": Entry("rainbow.cli.jobs:explain", "Say why a job went where it went, cluster by cluster."),
    "watch": Entry("rainbow.cli.follow:watch", "Follow jobs as they change."),
    "wait": Entry("rainbow.cli.follow:wait", "Wait until jobs have ended."),
    "logs": Entry("rainbow.cli.logs:logs", "Show what a job wrote."),
    "cancel": Entry("rainbow.cli.jobs:cancel", "Ask for jobs to end."),
    "satisfy": Entry("rainbow.cli.satisfy:satisfy", "Match jobspecs with resource graphs offline."),
    "clusters": Entry("rainbow.cli.clusters:app", "List clusters; drain, resume or delete one."),
    "groups": Entry("rainbow.cli.groups:app", "List groups of clusters, or set one."),
    "register": Entry("rainbow.cli.register:register", "Register a cluster by its resource graph."),
    "subsystem": Entry("rainbow.cli.subsystem:app", "Add or remove a cluster's subsystems (io, spack, ...)."),
    "state": Entry("rainbow.cli.state:state", "Update a cluster's state by hand."),
    "receive": Entry("rainbow.cli.receive:receive", "List and accept a cluster's waiting jobs by hand."),
    "top": Entry("rainbow.cli.top:top", "Watch clusters, queues and rates."),
    "dead": Entry("rainbow.cli.dead:app", "List, show, replay or drop what could not be processed."),
    "enroll": Entry("rainbow.cli.enroll:app", "Let agents in that have no token yet."),
    "token": Entry("rainbow.cli.tokens:app", "Issue, show, verify, revoke tokens; rotate the keys."),
    "config": Entry("rainbow.cli.config:app", "Make a settings file, or show the settings in force."),
    "broker": Entry("rainbow.cli.broker:app", "Set up the message broker."),
    "doctor": Entry("rainbow.cli.doctor:doctor", "Check everything, and say what to do."),
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
    return get_command(app)
