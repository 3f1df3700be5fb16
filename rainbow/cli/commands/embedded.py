"""`rainbow up`, `down`, `demo`: everything on this machine, with nothing installed beforehand."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rainbow.cli.options import Json
from rainbow.cli.render import output

if TYPE_CHECKING:
    from rainbow.demo.jobs import Outcome
    from rainbow.demo.sharing import Turn

DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="DIR", help="Folder of the instance (else ~/.local/share/rainbow)."),
]
_READY_S = 90.0
_CLUSTER = "local"
_CONSOLE = "The web console: "


def _data_dir(given: Path | None) -> Path:
    from rainbow.paths import expand
    from rainbow.settings import DATA_DIR

    return expand(given or DATA_DIR).resolve()


def up(
    data_dir: DataDir = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return once it runs; `rainbow down` ends it.")
    ] = False,
    graph: Annotated[
        Path | None,
        typer.Option("--graph", metavar="FILE", help="Resources of the cluster: JGF or R (else this machine)."),
    ] = None,
    web: Annotated[bool, typer.Option("--web", help="Serve the web console too.")] = False,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Address of the web console.")
    ] = "127.0.0.1:8080",
) -> None:
    """Start everything on this machine: one bundled server as broker and store, the scheduler, and one agent.

    The agent runs jobs as you, on a cluster named `local`. Data is kept in the folder of the instance.

    \b
    Example:
      rainbow up --detach
    """
    from rainbow.embedded.instance import AgentPlan, Instance, local_graph
    from rainbow.paths import private_folder

    folder = _data_dir(data_dir)
    if detach:
        _detached(folder, graph, listen if web else None)
        return
    instance = Instance(folder)
    private_folder(instance.data_dir)
    plan = AgentPlan(_CLUSTER, graph.resolve() if graph else local_graph(instance.data_dir, _CLUSTER))
    instance.prepare([plan])
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    console = instance.start([plan], web=listen if web else None)
    try:
        if console is not None:
            output.note(f"{_CONSOLE}{console} (sign in with the token in {instance.config})")
        _greet(instance.config)
        while not stop.wait(0.5):
            instance.check()
    finally:
        output.note("stopping")
        instance.stop()


def _detached(folder: Path, graph: Path | None, web: str | None) -> None:
    """Run `up` in a process of its own, and return when it is ready."""
    from rainbow.embedded.instance import Instance
    from rainbow.errors import Conflict, RainbowError, TimedOut
    from rainbow.paths import private_folder

    instance = Instance(folder)
    running = instance.running()
    if running is not None:
        raise Conflict(f"rainbow runs already in {folder} (process {running}): `rainbow down` ends it")
    log = folder / "logs" / "up.log"
    private_folder(folder)
    private_folder(log.parent)
    command = [sys.executable, "-m", "rainbow.cli", "up", "--data-dir", str(folder)]
    if graph is not None:
        command += ["--graph", str(graph.resolve())]
    if web is not None:
        command += ["--web", "--listen", web]
    with log.open("wb") as out:
        process = subprocess.Popen(  # noqa: S603 - our own program
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
    deadline = time.monotonic() + _READY_S
    while b"rainbow is up" not in log.read_bytes():
        if process.poll() is not None:
            said = log.read_text(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
            raise RainbowError(f"it did not start: {said[0].removeprefix('rainbow: ')} (see {log})")
        if time.monotonic() > deadline:
            process.terminate()
            raise TimedOut(f"it did not start within {_READY_S:g} s (see {log})")
        time.sleep(0.1)
    for line in log.read_text(errors="replace").splitlines():
        if line.startswith(_CONSOLE):
            output.note(line)
    _greet(instance.config)


def _greet(config: Path) -> None:
    from rainbow.settings import find

    output.note("rainbow is up. Try: rainbow submit --wait hostname")
    if find() != config:
        output.note(f"Other settings are in force here: export RAINBOW_CONFIG={config}")


def down(data_dir: DataDir = None) -> None:
    """Stop what `rainbow up` started. Its data stays: `rainbow up` goes on where it ended.

    \b
    Example:
      rainbow down
    """
    from rainbow.embedded.instance import Instance

    Instance(_data_dir(data_dir)).down()
    output.note("rainbow is down")


def demo(
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", metavar="DIR", help="Keep everything here (else a temporary folder).")
    ] = None,
    json_output: Json = False,
) -> None:
    """Show the main job: three clusters with different real resource graphs, and jobs that go where they can run.
    Then two users submit more than there is room for, and share it.

    Everything runs on this machine and is gone afterwards.

    \b
    Example:
      rainbow demo
    """
    from rainbow.demo.run import run
    from rainbow.demo.sharing import problems as unfair

    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        folder = data_dir or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rainbow-demo-")))
        outcomes, turns = run(folder, output.note)
    if json_output:
        output.document([_as_json(o) for o in outcomes])
    else:
        _show(outcomes)
        _show_turns(turns)
    problems = [*(f"{o.shown.title}: {p}" for o in outcomes for p in o.problems), *unfair(turns)]
    for problem in problems:
        output.note(f"unexpected: {problem}")
    output.note(f"{len(outcomes) + sum(t.jobs for t in turns)} jobs in {time.monotonic() - began:.0f} s")
    if problems:
        raise typer.Exit(1)


def _show(outcomes: list[Outcome]) -> None:
    rows = [[o.shown.title, o.record.cluster, _ended(o), _output(o), "; ".join(_why(o))] for o in outcomes]
    output.table(["job", "cluster", "end", "output", "why"], rows, empty="no jobs")


def _show_turns(turns: list[Turn]) -> None:
    rows = [
        [t.user, str(t.jobs), ", ".join(t.clusters), f"{t.median_wait:.1f} s", f"{t.last_start:.1f} s"] for t in turns
    ]
    output.table(["user", "jobs", "clusters", "median wait", "last start after"], rows, empty="no jobs")


def _output(outcome: Outcome) -> str:
    lines = (outcome.record.output or "").strip().splitlines()
    return lines[0][:60] if lines else ""


def _ended(outcome: Outcome) -> str:
    record = outcome.record
    return record.state if record.returncode in (None, 0) else f"{record.state} ({record.returncode})"


def _why(outcome: Outcome) -> list[str]:
    """Where it could have gone, who refused it, who cannot run it."""
    record = outcome.record
    answer = record.answer or {}
    parts: list[str] = []
    refused = [e for e in record.history if e.get("state") == "rejected"]
    parts += [f"{e.get('cluster')} refused: {e.get('detail') or e.get('code')}" for e in refused]
    if record.attempt:
        others = len(answer.get("clusters") or [])
        parts.append(f"{others} of {answer.get('total_clusters', '?')} clusters could run it")
    else:
        parts += [f"{name}: {reason['detail']}" for name, reason in (answer.get("reasons") or {}).items()]
    return parts


def _as_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "title": outcome.shown.title,
        "why": _why(outcome),
        "problems": outcome.problems,
        "job": outcome.record.model_dump(exclude_none=True),
    }
