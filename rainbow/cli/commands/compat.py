"""`rainbow compat`: what an image needs, and which clusters have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rainbow.cli.images import needs_of_image
from rainbow.cli.options import Clusters, Config, Json, Limit, Token
from rainbow.cli.render import output
from rainbow.cli.session import client, load_settings
from rainbow.errors import Denied, InvalidInput, NotFound

if TYPE_CHECKING:
    from rainbow.client.submission import JobFields

#: Of each cluster, whether it meets one need, and why not.
Row = dict[str, tuple[bool, str]]


def compat(
    image: Annotated[
        str, typer.Argument(metavar="IMAGE", help="Name of an image, or a compspec document (FILE.json).")
    ],
    graph: Annotated[
        Path | None, typer.Option("--graph", metavar="FILE", help="Ask about this graph (JGF or R), offline.")
    ] = None,
    subsystem: Annotated[
        list[str] | None,
        typer.Option("--subsystem", metavar="[NAME=]FILE", help="With --graph: a subsystem's graph; may be repeated."),
    ] = None,
    clusters: Clusters = None,
    as_json: Json = False,
    config: Config = None,
    token: Token = None,
    timeout: Limit = 30.0,
) -> None:
    """Show what an image needs of nodes, need by need, and which clusters have it.

    What is known of an image comes from the sources in the settings (compatibility.sources). Exit code 0: some cluster
    meets all needs; 1: none does.

    \b
    Examples:
      rainbow compat ghcr.io/rse-ops/lammps-matrix:openmpi-ubuntu-gpu-22.04
      rainbow compat --graph cluster.json --subsystem mpi=mpi.json compspec.json
    """
    found = needs_of_image(image, load_settings(config))
    if found is None:
        raise NotFound(f"no source of compatibility.sources has image {image}")
    where, needs = found
    # The last question is about all needs at once: each may be met, on different nodes.
    must = [item for item in needs if "weight" not in item]
    asked = [*([item] for item in needs), must]
    if graph is not None:
        rows = _offline(asked, graph, subsystem or ())
    else:
        rows = _answered(asked, clusters, config, token, timeout)
    *each, together = rows
    if as_json:
        output.document(_document(image, where, needs, each, together))
    else:
        _show(where, needs, each, together)
    if not any(good for good, _ in together.values()):
        raise typer.Exit(1)


def _question(needs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in item.items() if key != "weight"} for item in needs]


def _offline(asked: Sequence[Sequence[Mapping[str, Any]]], graph: Path, subsystems: Sequence[str]) -> list[Row]:
    from rainbow.jobspec import simple
    from rainbow.jobspec.compatibility import carrying
    from rainbow.resources.matching.satisfy import satisfy

    rows: list[Row] = []
    for needs in asked:
        answer = satisfy(graph, subsystems, carrying(simple(["true"]), _question(needs)))
        if answer["error"] is not None:
            raise InvalidInput(answer["error"]["message"])
        first = answer["unmet"][0] if answer["unmet"] else None
        rows.append({str(answer["cluster"]): (answer["match"], "" if first is None else str(first["detail"]))})
    return rows


def _answered(
    asked: Sequence[Sequence[Mapping[str, Any]]],
    clusters: Sequence[str] | None,
    config: Path | None,
    token: str | None,
    timeout: float,
) -> list[Row]:
    """What the scheduler says to each question: nothing is recorded, and no job is made."""
    rows: list[Row] = []
    with client(config, token, timeout) as rainbow:
        jobs = [rainbow.submit(**_fields(needs, clusters)) for needs in asked]
        for job in jobs:
            answer = job.wait_answer(timeout)
            if answer.status in ("denied", "invalid"):
                raise (Denied if answer.status == "denied" else InvalidInput)(answer.error or answer.status)
            row: Row = dict.fromkeys(answer.clusters, (True, ""))
            for name, reason in answer.reasons.items():
                row.setdefault(name, (False, _short(reason.code, reason.detail)))
            rows.append(dict(sorted(row.items())))
    return rows


def _fields(needs: Sequence[Mapping[str, Any]], clusters: Sequence[str] | None) -> JobFields:
    fields: JobFields = {"command": ["true"], "satisfy_only": True, "compatibility": _question(needs)}
    if clusters:
        fields["clusters"] = clusters
    return fields


def _short(code: str, detail: str) -> str:
    """Without the need, which stands in the row already."""
    if code == "compatibility" and ": " in detail:
        return detail.partition(": ")[2]
    return f"{code}: {detail}" if detail else code


def _document(
    image: str, where: str, needs: Sequence[Mapping[str, Any]], each: Sequence[Row], together: Row
) -> dict[str, Any]:
    def told(row: Row) -> dict[str, Any]:
        return {name: {"met": good, "detail": why} for name, (good, why) in row.items()}

    rows = [{**item, "clusters": told(row)} for item, row in zip(needs, each, strict=True)]
    return {"image": image, "source": where, "needs": rows, "clusters": told(together)}


def _show(where: str, needs: Sequence[Mapping[str, Any]], each: Sequence[Row], together: Row) -> None:
    preferences = sum("weight" in item for item in needs)
    output.line(f"{len(needs) - preferences} needs, {preferences} preferences, from {where}")
    table = []
    for item, row in zip(needs, each, strict=True):
        kind = "prefers" if "weight" in item else "needs, if said" if item.get("if_known") else "needs"
        for name, (good, why) in row.items():
            table.append((kind, item["attribute"], item["value"], name, "yes" if good else "no", why or "-"))
    output.table(("", "attribute", "value", "cluster", "met", "detail"), table, empty="it says nothing of its needs")
    for name, (good, why) in together.items():
        output.line(f"{name}: {'meets all needs' if good else f'no: {why}'}")
