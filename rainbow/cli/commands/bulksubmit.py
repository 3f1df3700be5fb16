"""Submit many jobs from one template."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from rainbow.cli import job_options as options
from rainbow.cli.commands.bulk import send
from rainbow.cli.options import Clusters, Config, Json, Limit, Token
from rainbow.cli.render import output
from rainbow.cli.templates import Inputs, combined, parted
from rainbow.cli.values import pairs, time_limit


def bulksubmit(
    words: Annotated[
        list[str],
        typer.Argument(metavar="[COMMAND...] ::: INPUT...", help="The template and its inputs.", show_default=False),
    ],
    nodes: options.NodeCount = None,
    tasks: options.Tasks = None,
    cores: options.Cores = None,
    gpus: options.Gpus = None,
    duration: options.Duration = None,
    name: options.Name = None,
    cwd: options.Cwd = None,
    env: options.Env = None,
    clusters: Clusters = None,
    priority: options.Priority = None,
    cc: Annotated[
        str | None, typer.Option("--cc", metavar="IDSET", help="Each job once for each of these numbers, as 0-3.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the submissions, a line each.")] = False,
    as_json: Json = False,
    config: Config = None,
    token: Token = None,
    timeout: Limit = 30.0,
) -> None:
    """Submit a job for each input: {} in the command, --name, --cwd and --env stands for it, as in `flux bulksubmit`.

    `::: A B` is a list of inputs, `:::: FILE` the lines of a file; of several lists each combination is a job ({0},
    {1}), and `:::+` goes along with the list before. {./} is the base name, {.//} the folder, {.%} and {./%} have no
    suffix; {seq} and {seq1} count the jobs, {cc} the copies of --cc (FLUX_JOB_CC in the environment). Without a list,
    inputs are lines of standard input; without a command, each input is one. Ids are printed in order.

    \b
    Examples:
      rainbow bulksubmit -n 4 --name 'run-{seq}' ./simulate {0} {1} ::: 1 2 3 ::: a.in b.in
      rainbow bulksubmit --cc 1-10 ./try {cc} ::: once
    """
    from rainbow.ranges.idset import IdSet

    command, groups = parted(words)
    copies: list[int | None] = [None] if cc is None else list(IdSet.parse(cc))
    plain = {
        "nodes": nodes,
        "tasks": tasks,
        "cores_per_task": cores,
        "gpus_per_task": gpus,
        "duration": None if duration is None else time_limit(duration, "-t"),
        "clusters": clusters or None,
        "priority": priority,
    }
    fields = {key: value for key, value in plain.items() if value is not None}
    filled = {"command": command, "name": name, "cwd": cwd, "environment": pairs(env or (), "--env")}
    lines = [_line(fields, filled, inputs) for inputs in combined(groups, copies)]
    if dry_run:
        for line in lines:
            output.line(line)
        return
    send((line.encode() for line in lines), len(lines), config=config, token=token, timeout=timeout, as_json=as_json)


def _line(fields: Mapping[str, Any], filled: Mapping[str, Any], inputs: Inputs) -> str:
    """A submission of `rainbow bulk`. Raises InvalidInput."""
    fill = inputs.fill
    environment = {key: fill(value) for key, value in filled["environment"].items()}
    if inputs.copy is not None:
        environment["FLUX_JOB_CC"] = str(inputs.copy)
    one = {
        "command": [fill(word) for word in filled["command"]] or fill("{}"),
        "name": filled["name"] and fill(filled["name"]),
        "cwd": filled["cwd"] and fill(filled["cwd"]),
        "environment": environment,
    }
    return json.dumps({**fields, **{key: value for key, value in one.items() if value}}, ensure_ascii=False)


__all__ = ["bulksubmit"]
