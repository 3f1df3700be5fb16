"""The `rainbow-agent` program. The one place that builds an agent from its settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(add_completion=True, no_args_is_help=False, rich_markup_mode=None, pretty_exceptions_enable=False)

Config = Annotated[Path | None, typer.Option(help="Settings file (rainbow-config.yaml).")]
Cluster = Annotated[str | None, typer.Option(help="The cluster this agent serves.")]
Graph = Annotated[Path | None, typer.Option(help="Resource graph (JGF or R); without it Flux is asked.")]
Executor = Annotated[str | None, typer.Option(help="What runs the jobs: auto, flux, flux-cli, local, dry-run.")]
Subsystems = Annotated[Path | None, typer.Option(help="Folder of subsystem graphs (NAME-subsystem.json).")]
StateDir = Annotated[Path | None, typer.Option(help="Where the agent keeps its journal and registration.")]


@app.callback(
    invoke_without_command=True, epilog="Example: rainbow-agent --cluster blue --graph blue.json --executor local"
)
def default(
    context: typer.Context,
    config: Config = None,
    cluster: Cluster = None,
    graph: Graph = None,
    executor: Executor = None,
    subsystems: Subsystems = None,
    state_dir: StateDir = None,
) -> None:
    """The agent beside Flux: takes the cluster's jobs from the queue and hands them to the executor."""
    options = {
        "config": config,
        "cluster": cluster,
        "graph": graph,
        "executor": executor,
        "subsystems": subsystems,
        "state_dir": state_dir,
    }
    context.obj = options
    if context.invoked_subcommand is None:
        _run(**options)


@app.command(epilog="Example: rainbow-agent run --config rainbow-config.yaml")
def run(
    context: typer.Context,
    config: Config = None,
    cluster: Cluster = None,
    graph: Graph = None,
    executor: Executor = None,
    subsystems: Subsystems = None,
    state_dir: StateDir = None,
) -> None:
    """Run the agent until SIGTERM. SIGHUP reads policy, values, graph and subsystem files again."""
    _run(**_merged(context, locals()))


@app.command(epilog="Example: rainbow-agent check --config rainbow-config.yaml")
def check(
    context: typer.Context,
    config: Config = None,
    cluster: Cluster = None,
    graph: Graph = None,
    executor: Executor = None,
    subsystems: Subsystems = None,
    state_dir: StateDir = None,
) -> None:
    """Say in plain words what is right and what is wrong, without taking jobs. Exit code 0 when all is right."""
    from rainbow_agents.check import examine

    options = _merged(context, locals())
    findings = examine(lambda: _settings(**options))
    for finding in findings:
        typer.echo(f"{'ok   ' if finding.ok else 'WRONG'}  {finding.what}: {finding.detail}")
    raise typer.Exit(next((f.exit_code for f in findings if not f.ok), 0))


@app.command(epilog="Example: rainbow-agent enroll --cluster blue --graph blue.json")
def enroll(
    context: typer.Context,
    config: Config = None,
    cluster: Cluster = None,
    graph: Graph = None,
    executor: Executor = None,
    subsystems: Subsystems = None,
    state_dir: StateDir = None,
    timeout: Annotated[float, typer.Option(min=1.0, help="Seconds to wait for an administrator.")] = 86_400.0,
) -> None:
    """Ask to serve a cluster without having a token: an administrator compares the code shown here, and approves."""
    import shlex
    import threading

    from rainbow import logs, settings
    from rainbow_agents.registration import enrollment

    options = _merged(context, locals())
    loaded = _settings(**options)
    logs.setup(loaded.log_level, loaded.log_format, settings.secrets(loaded))
    stop = threading.Event()
    limit = threading.Timer(timeout, stop.set)
    limit.daemon = True
    limit.start()
    try:
        made = enrollment.enroll(loaded, say=lambda text: typer.echo(text, err=True), stop=stop)
    finally:
        limit.cancel()
    given = {**options, "cluster": made.cluster}
    words = [w for key, value in given.items() if value for w in (f"--{key.replace('_', '-')}", str(value))]
    typer.echo(f"enrolled cluster {made.cluster}: start it with `{shlex.join(['rainbow-agent', *words])}`", err=True)


@app.command(epilog="Example: rainbow-agent health /run/rainbow-agent/health.json")
def health(file: Annotated[Path, typer.Argument(help="The file agent.health_file names.")]) -> None:
    """Whether a running agent does its work, by the health file it writes (for container health checks)."""
    from rainbow_agents.health import read

    typer.echo(f"{(found := read(file)).cluster}: {found.detail}")


def _merged(context: typer.Context, given: dict[str, Any]) -> dict[str, Any]:
    """Options may stand before or after the command's name."""
    before: dict[str, Any] = context.obj or {}
    return {key: given[key] if given[key] is not None else value for key, value in before.items()}


def _settings(
    config: Path | None,
    cluster: str | None,
    graph: Path | None,
    executor: str | None,
    subsystems: Path | None,
    state_dir: Path | None,
) -> Any:
    from rainbow import settings

    loaded = settings.load(config)
    changes = {"graph": graph, "executor": executor, "subsystems": subsystems, "state_dir": state_dir}
    agent = loaded.agent.model_copy(update={k: v for k, v in changes.items() if v is not None})
    update: dict[str, Any] = {"agent": agent}
    if cluster is not None:
        from rainbow.topology import check_cluster_name

        name = check_cluster_name(cluster)
        same = loaded.cluster.name in (None, name)
        update["cluster"] = (
            loaded.cluster.model_copy(update={"name": name}) if same else settings.ClusterSettings(name=name)
        )
    return loaded.model_copy(update=update)


def _run(**options: Any) -> None:
    import logging
    import signal
    import threading

    from rainbow import exposure, logs, settings
    from rainbow.errors import RainbowError
    from rainbow.program import up
    from rainbow_agents import metrics
    from rainbow_agents.agent import Agent

    loaded = _settings(**options)
    logs.setup(loaded.log_level, loaded.log_format, settings.secrets(loaded))
    exposure.warn_if_exposed(options["config"])
    log = logging.getLogger("rainbow_agents")
    agent = Agent(loaded)
    stop_metrics = metrics.serve(agent, loaded.agent.metrics) if loaded.agent.metrics is not None else None
    hangup = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: agent.request_stop())
    signal.signal(signal.SIGHUP, lambda *_: hangup.set())
    agent.start()
    up()
    while not agent.wait(0.5):
        if hangup.is_set():
            hangup.clear()
            try:
                agent.reload(_settings(**options))
            except RainbowError as exc:  # the settings in force stay
                log.error("settings not read again: %s", exc, extra={"action": "reload"})  # noqa: TRY400
    code = agent.stop()
    if stop_metrics is not None:
        stop_metrics()
    if agent.failure is not None and isinstance(agent.failure, RainbowError):
        raise agent.failure
    raise typer.Exit(code)


def main() -> None:
    """Run, and turn errors into one line and an exit code."""
    from typer.main import get_command

    from rainbow.helptext import plain
    from rainbow.program import run as run_program

    command = plain(get_command(app))
    run_program("rainbow-agent", lambda: command.main(prog_name="rainbow-agent", standalone_mode=False))


if __name__ == "__main__":
    main()
