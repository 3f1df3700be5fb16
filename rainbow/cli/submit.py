"""Submit a job, or ask who could run it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rainbow.cli import output, records
from rainbow.cli.options import Clusters, Config, Json, Limit, Token
from rainbow.cli.session import client
from rainbow.cli.values import pairs, typed

if TYPE_CHECKING:
    from rainbow.client import Job
    from rainbow.models.job import Answer, JobRecord

#: Exit codes of answers that mean the job will not run.
_EXIT = {"denied": 3, "invalid": 2, "no-match": 1, "unsatisfiable": 1, "expired": 1}


def submit(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[COMMAND...]", help="What to run, with its arguments.", show_default=False),
    ] = None,
    nodes: Annotated[int | None, typer.Option("-N", "--nodes", min=1, help="Nodes.", show_default=False)] = None,
    tasks: Annotated[int | None, typer.Option("-n", "--tasks", min=1, help="Tasks.", show_default=False)] = None,
    cores: Annotated[
        int | None, typer.Option("-c", "--cores-per-task", min=1, help="Cores for each task.", show_default=False)
    ] = None,
    gpus: Annotated[
        int | None, typer.Option("-g", "--gpus-per-task", min=0, help="GPUs for each task.", show_default=False)
    ] = None,
    duration: Annotated[
        str | None, typer.Option("-t", "--duration", metavar="TIME", help="Time limit: 90, 30s, 10m, 1.5h.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of the job.")] = None,
    cwd: Annotated[str | None, typer.Option("--cwd", metavar="DIR", help="Working directory, on the cluster.")] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", metavar="KEY=VALUE", help="Environment; may be repeated.")
    ] = None,
    image: Annotated[str | None, typer.Option("--image", help="Container image, carried to the cluster.")] = None,
    requires: Annotated[
        list[str] | None,
        typer.Option(
            "--requires",
            metavar="name=S,field=F,match=V",
            help="A need of subsystem S (also min=, max=); may be repeated.",
        ),
    ] = None,
    jobspec: Annotated[
        Path | None, typer.Option("--jobspec", metavar="FILE", help="Jobspec in place of a command and its options.")
    ] = None,
    clusters: Clusters = None,
    match: Annotated[str | None, typer.Option("--match", metavar="NAME", help="Match algorithm.")] = None,
    select: Annotated[str | None, typer.Option("--select", metavar="NAME", help="Selection algorithm.")] = None,
    select_option: Annotated[
        list[str] | None,
        typer.Option("--select-option", metavar="KEY=VALUE", help="Option of the selection; may be repeated."),
    ] = None,
    hold: Annotated[
        float, typer.Option("--hold", min=0, metavar="SECONDS", help="Wait so long for a cluster that can take it.")
    ] = 0.0,
    priority: Annotated[int | None, typer.Option("--priority", min=0, max=31, help="0 to 31, 16 if left out.")] = None,
    expires: Annotated[
        str | None,
        typer.Option(
            "--expires", metavar="WHEN", help="Drop if not assigned by then (RFC 3339, or seconds since 1970)."
        ),
    ] = None,
    job_id: Annotated[
        str | None, typer.Option("--id", metavar="UUID", help="Id of the job: the same again runs it once.")
    ] = None,
    satisfy_only: Annotated[
        bool, typer.Option("--satisfy-only", help="Only say which clusters could run it; nothing is submitted.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the end, print the output, exit 0 if it completed, else 1.")
    ] = False,
    as_json: Json = False,
    config: Config = None,
    token: Token = None,
    timeout: Limit = 30.0,
) -> None:
    """Submit a job. Its id is printed on stdout, with --wait its output instead (and the id on stderr).

    Options come before the command; what follows the command belongs to it. One word with spaces in it is read as a
    shell would. The tokens of all clusters in the settings are used, or those of the clusters named.

    \b
    Examples:
      rainbow submit -N 2 -t 10m hostname
      rainbow submit --wait --cluster blue "echo hello from blue"
      rainbow submit --jobspec job.yaml --satisfy-only
    """
    if not command and jobspec is None:
        raise typer.BadParameter("say what to run: a COMMAND with its arguments, or --jobspec FILE")
    if select_option and select is None:
        raise typer.BadParameter("--select-option needs --select")
    fields: dict[str, Any] = {
        "id": job_id,
        "command": _command(command),
        "jobspec": jobspec,
        "nodes": nodes,
        "tasks": tasks,
        "cores_per_task": cores,
        "gpus_per_task": gpus,
        "duration": duration,
        "cwd": cwd,
        "environment": pairs(env, "--env") if env else None,
        "name": name,
        "image": image,
        "requires": [pairs(text.split(","), "--requires") for text in requires] if requires else None,
        "clusters": clusters or None,
        "match": match,
        "selection": _algorithm(select, select_option),
        "satisfy_only": satisfy_only,
        "hold": hold,
        "priority": priority,
        "expires": _when(expires),
    }
    given: Any = {key: value for key, value in fields.items() if value is not None}
    with client(config, token, timeout) as rainbow:
        job = rainbow.submit(**given)
        if satisfy_only:
            raise typer.Exit(_satisfied(job.wait_answer(timeout), as_json))
        raise typer.Exit(_submitted(job, as_json=as_json, wait=wait, timeout=timeout))


def _command(words: list[str] | None) -> list[str] | str | None:
    if words and len(words) == 1 and any(c.isspace() for c in words[0]):
        return words[0]
    return words or None


def _algorithm(name: str | None, options: list[str] | None) -> dict[str, Any] | None:
    if name is None:
        return None
    return {"name": name, "options": {k: typed(v) for k, v in pairs(options or (), "--select-option").items()}}


def _when(text: str | None) -> str | float | None:
    value = None if text is None else typed(text)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else text


def _satisfied(answer: Answer, as_json: bool) -> int:
    if as_json:
        output.document(answer.model_dump(mode="json"))
    elif answer.status in ("denied", "invalid"):
        output.note(f"rainbow: {answer.error or answer.status}")
    else:
        output.fields(
            {
                "matches": f"{answer.total_matches}  {' '.join(answer.clusters)}".rstrip(),
                "mismatches": answer.total_mismatches,
                "total": answer.total_clusters,
            }
        )
        _reasons(answer)
    return _EXIT.get(answer.status, 0)


def _submitted(job: Job, *, as_json: bool, wait: bool, timeout: float) -> int:
    if not as_json:
        # Told before anything else can go wrong.
        (output.note if wait else output.line)(job.id)
    answer = job.wait_answer(timeout)
    code = _EXIT.get(answer.status, 0)
    if answer.status == "duplicate" and answer.state is not None:
        code = 1 if answer.state in ("failed", "cancelled", "lost", *_EXIT) else 0
    if not as_json:
        output.note(_said(answer))
        if code:
            _reasons(answer)
    ended: JobRecord | None = None
    if wait and answer.status not in _EXIT:
        ended = job.wait()
        code = 0 if ended.state == "completed" else 1
        if not as_json:
            _ended(ended)
    if as_json:
        document = answer.model_dump(mode="json")
        if wait:
            document["job"] = records.plain(ended) if ended is not None else None
        output.document(document)
    return code


def _said(answer: Answer) -> str:
    matches = f"{answer.total_matches} of {answer.total_clusters} clusters can run it"
    error = f": {answer.error}" if answer.error else ""
    match answer.status:
        case "assigned":
            return f"assigned to {answer.cluster} ({matches})"
        case "held":
            return f"held until a cluster can take it ({matches}){error}"
        case "duplicate":
            where = f" to {answer.cluster}" if answer.cluster else ""
            return f"submitted before: {answer.state or 'assigned'}{where}"
        case "no-match":
            return f"rainbow: none of {answer.total_clusters} clusters can run it{error}"
        case _:
            return f"rainbow: {answer.status}{error}"


def _reasons(answer: Answer) -> None:
    for cluster, reason in sorted(answer.reasons.items()):
        output.note(f"  {cluster}: {reason.code}" + (f": {reason.detail}" if reason.detail else ""))


def _ended(record: JobRecord) -> None:
    if record.output:
        output.line(record.output.rstrip("\n"))
    if record.state != "completed":
        output.note(f"rainbow: {records.line(record)}")
