"""Submit a job, or ask who could run it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from rainbow.cli import job_options as options
from rainbow.cli.images import with_needs_of
from rainbow.cli.options import Clusters, Config, Json, Limit, Token
from rainbow.cli.render import output, records
from rainbow.cli.scripts import document_of, waits_of, with_script
from rainbow.cli.session import client, interruptible, load_settings
from rainbow.cli.values import moment, pairs, text_of_stdin, time_limit, typed, uuid
from rainbow.errors import NotFound

if TYPE_CHECKING:
    from rainbow.client import Client, Job
    from rainbow.models.job import Answer, JobRecord

#: Exit codes of answers that mean the job will not run.
_EXIT = {"denied": 3, "invalid": 2, "no-match": 1, "unsatisfiable": 1, "expired": 1}


def submit(
    command: options.Words = None,
    nodes: options.NodeCount = None,
    tasks: options.Tasks = None,
    cores: options.Cores = None,
    gpus: options.Gpus = None,
    duration: options.Duration = None,
    name: options.Name = None,
    account: options.Account = None,
    cwd: options.Cwd = None,
    env: options.Env = None,
    image: options.Image = None,
    requires: options.Requires = None,
    jobspec: options.JobspecFile = None,
    script: options.ScriptFile = None,
    directive: options.Directive = None,
    directives: options.Dialect = None,
    ignore_unsupported: options.IgnoreUnsupported = False,
    clusters: Clusters = None,
    match: options.Match = None,
    select: options.Select = None,
    select_option: options.SelectOption = None,
    hold: options.Hold = 0.0,
    priority: options.Priority = None,
    expires: options.Expires = None,
    dependency: options.Dependency = None,
    begin_time: options.BeginTime = None,
    array: options.Array = None,
    stage_in: options.StageIn = None,
    stage_out: options.StageOut = None,
    job_id: options.Id = None,
    satisfy_only: options.SatisfyOnly = False,
    dry_run: options.DryRun = False,
    wait: options.Wait = False,
    as_json: Json = False,
    config: Config = None,
    token: Token = None,
    timeout: Limit = 30.0,
) -> None:
    """Submit a job. Its id is printed on stdout, with --wait its output instead (and the id on stderr).

    Options come before the command; what follows the command belongs to it. One word with spaces in it is read as a
    shell would. The tokens of all clusters in the settings are used, or those of the clusters named. With --wait the
    exit code is the job's (128 + N for signal N, else 1), of an array the largest; Ctrl-C leaves the job running.

    \b
    Examples:
      rainbow submit -N 2 -t 10 hostname
      rainbow submit --wait --cluster blue --stage-in data.csv "wc -l data.csv"
      rainbow submit --array 1-1000%50 ./simulate '{{array.index}}'
    """
    fields: Any = _fields(locals())
    if dry_run:
        raise typer.Exit(_shown(fields, config))
    with client(config, token, timeout) as rainbow:
        job = rainbow.submit(**fields)
        if satisfy_only:
            raise typer.Exit(_satisfied(job.wait_answer(timeout), as_json))
        code = _submitted(rainbow, job, as_json=as_json, wait=wait, timeout=timeout)
        raise typer.Exit(_fetched(rainbow, job.id, stage_out, code) if wait and stage_out else code)


def _shown(fields: Mapping[str, Any], config: Path | None) -> int:
    if fields.get("stage_in") or fields.get("stage_out"):
        from rainbow.client.staging import with_files

        fields, _ = with_files(fields, load_settings(config).staging)
    output.document(document_of(fields))
    for line in waits_of(fields):
        output.note(f"rainbow: {line}")
    return 0


#: Options that are fields of a submission as they are, by the name of the option.
_PLAIN = {
    "nodes": "nodes",
    "tasks": "tasks",
    "cores": "cores_per_task",
    "gpus": "gpus_per_task",
    "cwd": "cwd",
    "name": "name",
    "account": "account",
    "image": "image",
    "clusters": "clusters",
    "match": "match",
    "satisfy_only": "satisfy_only",
    "hold": "hold",
    "priority": "priority",
    "dependency": "dependency",
    "array": "array",
    "stage_in": "stage_in",
    "stage_out": "stage_out",
}


def _fields(said: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a submission (see `rainbow.client.JobFields`) that the parameters of `submit` give."""
    script = said["script"]
    if not said["command"] and said["jobspec"] is None and script is None:
        raise typer.BadParameter("say what to run: a COMMAND with its arguments, --jobspec FILE or --script FILE")
    if script is None and (said["directive"] or said["directives"] or said["ignore_unsupported"]):
        raise typer.BadParameter("--directive, --directives and --ignore-unsupported need --script")
    if said["select_option"] and said["select"] is None:
        raise typer.BadParameter("--select-option needs --select")
    requires, env, duration, expires = (said[name] for name in ("requires", "env", "duration", "expires"))
    begin = said["begin_time"]
    fields = {
        **{field: said[option] for option, field in _PLAIN.items()},
        "id": None if said["job_id"] is None else uuid(said["job_id"], "--id"),
        "command": said["command"] if script is not None else _command(said["command"]),
        "jobspec": _jobspec(said["jobspec"]),
        "duration": None if duration is None else time_limit(duration, "-t"),
        "environment": pairs(env, "--env") if env else None,
        "requires": [pairs(text.split(","), "--requires") for text in requires] if requires else None,
        "selection": _algorithm(said["select"], said["select_option"]),
        "expires": None if expires is None else moment(expires, "--expires"),
        "begin_time": None if begin is None else moment(begin, "--begin-time"),
    }
    if script is not None:
        fields = with_script(fields, script, said["directive"] or (), said["directives"], said["ignore_unsupported"])
    fields = {field: value for field, value in fields.items() if value not in (None, [], ())}
    return with_needs_of(said["image"], fields, said["config"]) if said["image"] is not None else fields


def _command(words: list[str] | None) -> list[str] | str | None:
    if words and len(words) == 1 and any(c.isspace() for c in words[0]):
        return words[0]
    return words or None


def _algorithm(name: str | None, options: list[str] | None) -> dict[str, Any] | None:
    if name is None:
        return None
    return {"name": name, "options": {k: typed(v) for k, v in pairs(options or (), "--select-option").items()}}


def _jobspec(name: str | None) -> Path | str | None:
    if name != "-":
        return None if name is None else Path(name)
    return text_of_stdin("--jobspec")


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


def _submitted(rainbow: Client, job: Job, *, as_json: bool, wait: bool, timeout: float) -> int:
    if not as_json:
        # Told before anything else can go wrong.
        (output.note if wait else output.result)(job.id)
    with interruptible([job.id]):
        answer = job.wait_answer(timeout)
    code = _EXIT.get(answer.status, 0)
    if answer.code == "too-many-requests":
        code = 4
    if answer.status == "duplicate" and answer.state is not None:
        code = 1 if answer.state in ("failed", "cancelled", "lost", *_EXIT) else 0
    if not as_json:
        output.note(_said(answer))
        if code:
            _reasons(answer)
    ended: JobRecord | None = None
    if wait and answer.status not in _EXIT:
        from rainbow.cli.attach import exit_code, follow

        with interruptible([job.id]):
            ended = job.wait() if as_json else follow(rainbow, job.id, _moved(answer))
        code = exit_code(ended)
        if not as_json and (ended.state != "completed" or ended.indices):
            output.note(f"rainbow: {records.line(ended)}")
    if as_json:
        document = answer.model_dump(mode="json")
        if wait:
            document["job"] = records.plain(ended) if ended is not None else None
        output.document(document)
    return code


def _fetched(rainbow: Client, job_id: str, paths: Sequence[str], code: int) -> int:
    """Bring home what the job left; one that failed may have left nothing."""
    with contextlib.suppress(NotFound) if code else contextlib.nullcontext():
        output.note(f"fetched {' '.join(rainbow.fetch(job_id, paths=paths))}")
    return code


def _said(answer: Answer) -> str:
    matches = f"{answer.total_matches} of {answer.total_clusters} clusters can run it"
    error = f": {answer.error}" if answer.error else ""
    match answer.status:
        case "assigned":
            served = answer.reasons.get(answer.cluster or "")
            return f"assigned to {answer.cluster} ({matches})" + (f": {served.detail}" if served else "")
        case "held":
            if answer.error:
                return f"held: {answer.error}"
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
        if cluster in answer.clusters and answer.status == "satisfied":
            continue
        output.note(f"  {cluster}: {reason.code}" + (f": {reason.detail}" if reason.detail else ""))


def _moved(answer: Answer) -> Callable[[JobRecord], None]:
    """What says on stderr where a job goes that does not run where it was assigned first."""
    where = answer.cluster

    def changed(record: JobRecord) -> None:
        nonlocal where
        if record.state == "assigned" and record.cluster != where:
            output.note(f"assigned to {record.cluster} (attempt {record.attempt})")
            where = record.cluster

    return changed
