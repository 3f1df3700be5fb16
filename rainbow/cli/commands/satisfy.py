"""`rainbow satisfy`: the matcher alone, on files, without broker, store or Flux."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rainbow.cli.options import Json
from rainbow.cli.render import output
from rainbow.errors import InvalidGraph


def satisfy(
    graph: Annotated[
        Path | None,
        typer.Option("--graph", metavar="FILE", help="Resource graph (JGF) or R; left out: only check the jobspec."),
    ] = None,
    subsystem: Annotated[
        list[str] | None,
        typer.Option("--subsystem", metavar="[NAME=]FILE", help="A subsystem's graph; may be repeated."),
    ] = None,
    jobspec: Annotated[Path | None, typer.Option("--jobspec", metavar="FILE", help="Jobspec of any dialect.")] = None,
    nodes: Annotated[int | None, typer.Option("-N", "--nodes", min=1, help="In place of a jobspec: nodes.")] = None,
    tasks: Annotated[int | None, typer.Option("-n", "--tasks", min=1, help="In place of a jobspec: tasks.")] = None,
    cores: Annotated[int | None, typer.Option("-c", "--cores-per-task", min=1, help="Cores for each task.")] = None,
    gpus: Annotated[int | None, typer.Option("-g", "--gpus-per-task", min=0, help="GPUs for each task.")] = None,
    dialect: Annotated[
        str | None, typer.Option("--dialect", metavar="NAME", help="Read it as V1, canonical, nextgen, nextgen-list.")
    ] = None,
    matcher: Annotated[
        str | None, typer.Option("--matcher", metavar="NAME", help="count, or fluxion: Fluxion's walk must agree too.")
    ] = None,
    dominant: Annotated[
        str | None, typer.Option("--dominant", metavar="NAME", help="Subsystem whose edges make the tree.")
    ] = None,
    rows: Annotated[
        Path | None, typer.Option("--rows", metavar="FILE", help="Many questions: one JSON object on each line.")
    ] = None,
    base: Annotated[
        Path | None, typer.Option("--base", metavar="DIR", help="Where paths in --rows start (else beside the file).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say whether a jobspec can ever run on a cluster, and if not, why.

    Exit code 0: it can; 1: it cannot; 2: the graph or the jobspec is invalid.

    \b
    Example:
      rainbow satisfy --graph cluster-nodes.json --subsystem io=io.json --jobspec job.yaml
    """
    from rainbow.resources.matching import satisfy as offline

    if rows is not None:
        _answer_rows(rows, base, as_json)
        return
    wanted: Any = jobspec
    if wanted is None:
        if nodes is None and tasks is None and cores is None and gpus is None:
            raise typer.BadParameter("give --jobspec FILE, or numbers such as -N 2 -n 8")
        from rainbow.jobspec import simple

        wanted = simple(["true"], nodes=nodes, tasks=tasks, cores_per_task=cores or 1, gpus_per_task=gpus or 0)
    answer = offline.satisfy(graph, subsystem or (), wanted, dialect, matcher, dominant)
    if as_json:
        output.document(answer)
    else:
        _say(answer, graph is not None)
    if answer["error"] is not None:
        raise typer.Exit(2)
    if not answer["match"]:
        raise typer.Exit(1)


def _answer_rows(rows: Path, base: Path | None, as_json: bool) -> None:
    import json

    from rainbow.resources.matching.satisfy import satisfy_rows

    for answer in satisfy_rows(rows, base):
        if as_json:
            output.line(json.dumps(answer, ensure_ascii=False))
        else:
            _say(answer, True)
    # With answers out there is nothing an error could still be wrapped in.
    output.as_json.set(False)


def _say(answer: dict[str, Any], with_graph: bool) -> None:
    error = answer["error"]
    cluster = answer["cluster"] or ("graph" if error and error["code"] == InvalidGraph.code else "jobspec")
    if error is not None:
        output.note(f"{cluster}: invalid: {error['message'].removeprefix(f'{cluster}: ')}")
    elif not with_graph:
        output.line("the jobspec is valid")
    elif answer["match"]:
        output.line(f"{cluster}: match ({answer['slots']} at once)")
    else:
        first = answer["unmet"][0]
        where = f"{first['path']}: " if first["path"] else ""
        output.line(f"{cluster}: no match: {where}{first['detail']} [{first['code']}]")
