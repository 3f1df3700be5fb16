"""A batch script as a job: its directives, what the command line adds, the V1 jobspec that runs it."""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rainbow.errors import InvalidInput
from rainbow.jobspec.dialects.simple import simple
from rainbow.scripts import flux, lsf, pbs, slurm
from rainbow.scripts.directives import Dialect, Directive, find
from rainbow.scripts.slots import Slots, slots_of
from rainbow.scripts.translation import Translation
from rainbow.scripts.values import entry

_SCRIPT = "{{tmpdir}}/script"
_READERS = {"slurm": slurm.translate, "pbs": pbs.translate, "lsf": lsf.translate}


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the command line says; it beats the script. `directives` are further options of ``flux batch``.

    `slurm` are options of ``sbatch``. `duration` is in seconds or text with a unit; `dialect` is needed where a script
    has directives of two.
    """

    nodes: int | None = None
    tasks: int | None = None
    cores_per_task: int | None = None
    gpus_per_task: int | None = None
    duration: float | int | str | None = None
    name: str | None = None
    cwd: str | None = None
    environment: Mapping[str, str] | None = None
    image: str | None = None
    array: str | None = None
    directives: Sequence[str] = ()
    slurm: Sequence[str] = ()
    dialect: Dialect | None = None


@dataclass(frozen=True, slots=True)
class BatchJob:
    """A script as a job. `refused` has one line for each directive without a counterpart, `lenient` says to go on."""

    jobspec: dict[str, Any]
    name: str
    priority: int | None = None
    clusters: tuple[str, ...] = ()
    array: str | None = None
    refused: tuple[str, ...] = field(default=())
    lenient: bool = False


def read_script(
    text: str,
    name: str,
    arguments: Sequence[str] = (),
    overrides: Overrides | None = None,
    environ: Mapping[str, str] | None = None,
) -> BatchJob:
    """Read a script, with `name` for the job unless a directive or the command line names it.

    The jobspec is that of ``flux batch``: one broker on each node of the allocation, and the script run in the
    instance of Flux that they make. `environ` is what ``--env`` rules of the script may take from.

    Raises:
        InvalidInput: no ``#!`` on the first line, a directive that cannot be read, numbers that contradict each other.
    """
    given = overrides or Overrides()
    if not text.startswith("#!"):
        raise InvalidInput("the first line of the script must start with #!, as #!/bin/sh")
    if "\0" in text:
        raise InvalidInput("the script holds NUL characters")
    found = find(text, given.dialect)
    made = Translation()
    for directive in found.found:
        _translate(found.dialect, directive, made)
    if given.slurm:
        slurm.translate(tuple(given.slurm), made)
    made.refused += [f"line {line}: after the first command, where no scheduler reads it" for line in found.late]
    parsed = flux.Parsed(resources=made.resources)
    for directive in found.found if found.dialect == "flux" else ():
        try:
            flux.parse(directive.words, parsed)
        except InvalidInput as exc:
            raise InvalidInput(f"line {directive.line}: {exc}") from None
    flux.parse([*made.words, *given.directives], parsed)
    asked = parsed.resources
    asked.override(given.nodes, given.tasks, given.cores_per_task, given.gpus_per_task)
    if found.dialect == "flux" and asked.nodes is None and asked.tasks is None:
        raise InvalidInput("the script does not say its size: add #flux: -n SLOTS, or give -n on the command line")
    slots = slots_of(asked)
    options = parsed.options
    chosen = given.name or options.job_name or name
    document = _document(text, arguments, slots, options, given, chosen)
    flux.apply(options, document, flux.submitter() if environ is None else environ)
    system = document["attributes"]["system"]
    if given.cwd is not None:
        system["cwd"] = given.cwd
    system["environment"] |= given.environment or {}
    if found.dialect in _READERS or given.slurm:
        _launch(document, slots, asked.cores_per_task, chosen)
    array = given.array or made.array
    if array is None:
        document = _without_array(document, "0" if found.dialect == "lsf" else None)
    refused = (*made.refused, *parsed.refused)
    return BatchJob(document, chosen, flux.priority(options), tuple(made.clusters), array, refused, made.lenient)


def _without_array(document: dict[str, Any], index: str | None) -> dict[str, Any]:
    """Names of files of a job that is no array; LSF has `index` there. Raises InvalidInput where none is known."""
    options = document["attributes"]["system"]["shell"]["options"]
    for name in ("output", "input"):
        for entry_ in (options.get(name) or {}).values():
            path = entry_.get("path") if isinstance(entry_, dict) else None
            if isinstance(path, str):
                if index is None and "{{array.index}}" in path:
                    raise InvalidInput(f"{path!r} needs the index of an array (%a), and there is no --array")
                entry_["path"] = path.replace("{{array.id}}", "{{id}}").replace("{{array.index}}", index or "")
    return document


def _translate(dialect: Dialect | None, directive: Directive, made: Translation) -> None:
    reader = _READERS.get(dialect or "")
    if reader is None:
        return
    before = len(made.refused)
    try:
        reader(directive.words, made)
    except InvalidInput as exc:
        raise InvalidInput(f"line {directive.line}: {exc}") from None
    made.refused[before:] = [f"line {directive.line}: {text}" for text in made.refused[before:]]


def _document(
    text: str, arguments: Sequence[str], slots: Slots, options: Any, given: Overrides, name: str
) -> dict[str, Any]:
    """The V1 document of a batch job, without what `flux.apply` adds."""
    duration = given.duration if given.duration is not None else flux.duration(options)
    document = simple(
        ["flux", "broker", _SCRIPT, *arguments],
        nodes=slots.nodes,
        tasks=slots.count,
        cores_per_task=slots.cores,
        gpus_per_task=slots.gpus,
        duration=duration,
        name=name,
        image=given.image,
    )
    if slots.whole_nodes:
        document["resources"][0]["exclusive"] = True
    system = document["attributes"]["system"]
    system["shell"] = {"options": {"per-resource": {"type": "node"}, "mpi": "none", "exit-timeout": "none"}}
    system["files"] = {"script": entry(text.encode(), 0o100700)}
    return document


def _launch(document: dict[str, Any], slots: Slots, cores: int | None, name: str) -> None:
    """Give a script of another scheduler what it expects: its variables, and `srun`.

    Only the values that are known before the job runs are set here; `launch.sh` sets the others.
    """
    system = document["attributes"]["system"]
    known = {"SLURM_NTASKS": slots.tasks, "SLURM_NPROCS": slots.tasks, "SLURM_JOB_NAME": name}
    if slots.nodes is not None:
        known |= {"SLURM_NNODES": slots.nodes, "SLURM_JOB_NUM_NODES": slots.nodes}
    if cores is not None:
        known["SLURM_CPUS_PER_TASK"] = cores
    system["environment"] = {key: str(value) for key, value in known.items()} | system["environment"]
    folder = importlib.resources.files("rainbow.scripts")
    for file, source in (("launch", "launch.sh"), ("srun", "srun.sh")):
        system["files"][file] = entry((folder / source).read_bytes(), 0o100700)
    command = document["tasks"][0]["command"]
    command.insert(command.index(_SCRIPT), "{{tmpdir}}/launch")
