"""Files that travel with a job: small ones in its jobspec, large ones and what it leaves through a place."""

from __future__ import annotations

import hashlib
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path, PurePath
from typing import Any

from rainbow.client.submission import build, document_of
from rainbow.errors import InvalidInput, NotFound
from rainbow.jobspec import read
from rainbow.models.ids import read_id
from rainbow.models.job import SIMPLE_FORM
from rainbow.models.staging import StagedFile, Staging, StagingSettings, inside, staging_of
from rainbow.models.wire import parse
from rainbow.scripts.values import entry
from rainbow.staging import Place, open_place


def place_of(settings: StagingSettings) -> tuple[str, Place]:
    """The submitter's place, and its name. Raises InvalidInput where there is none."""
    name = settings.place or (next(iter(settings.places)) if len(settings.places) == 1 else None)
    if name not in settings.places:
        raise InvalidInput(
            f"there is no place for files over {settings.small} bytes and for what jobs leave: set staging.places, "
            "and staging.place where there are several"
        )
    return name, open_place(name, settings.places[name])


def fetch(
    job_id: str, into: Path, settings: StagingSettings, wanted: Sequence[str] | Callable[[str], Mapping[str, Any]]
) -> list[str]:
    """Bring home what a job left, then empty its part of the place. Returns the paths in `into`.

    A folder with files gets only what the job was to leave: the `wanted` paths, or those in the jobspec that this
    function gives. Others come from a cluster that may mean no good (``.bashrc``).
    """
    _, place = place_of(settings)
    array, _, index = job_id.rstrip("]").partition("[")
    try:
        array = read_id(array)
    except ValueError as exc:
        raise InvalidInput(f"job {job_id!r}: {exc}") from None
    left = f"{array}/out/{index}".rstrip("/")
    into.mkdir(parents=True, exist_ok=True)
    paths = _left_by(array, wanted) if any(into.iterdir()) else None
    with tempfile.TemporaryDirectory(dir=into, prefix=".rainbow-") as made:
        folder = Path(made)
        place.get(left, folder)
        found = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
        if paths is not None:
            found = [path for path in found if not paths.isdisjoint((path, *path.parents, *_of_element(path)))]
        for path in found:
            (into / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).replace(into / path)
    place.remove(left if index else array)
    return [str(path) for path in found]


def _left_by(array: str, wanted: Sequence[str] | Callable[[str], Mapping[str, Any]]) -> set[PurePath]:
    if callable(wanted):
        try:
            found = wanted(array)
        except NotFound as exc:
            raise NotFound(f"what the job was to leave is not known ({exc}): fetch into an empty folder") from None
        wanted = parse(Staging, staging_of(found) or {}).out
    return {PurePath(_inside(path, "stage-out")) for path in wanted}


def _of_element(path: PurePath) -> tuple[PurePath, ...]:
    """The path of an element of an array without its index, and the folders of that."""
    index, *rest = path.parts
    return (PurePath(*rest), *PurePath(*rest).parents) if index.isdecimal() and rest else ()


def with_files(
    fields: Mapping[str, Any], settings: StagingSettings
) -> tuple[Mapping[str, Any], Callable[[], None] | None]:
    """The fields of a submission with their `stage_in` and `stage_out` in the jobspec, and what uploads large files.

    Raises:
        InvalidInput: no such file, a path that leaves the working directory, no place where one is needed, or a job
            that cannot have files.
    """
    rest = {key: value for key, value in fields.items() if key not in ("stage_in", "stage_out")}
    given = _listed(fields.get("stage_in"), "stage_in")
    out = [_inside(path, "stage-out") for path in _listed(fields.get("stage_out"), "stage_out")]
    if not given and not out:
        return rest, None
    sources = _sources(given)
    files = {path: _read(source, path, settings.small) for path, source in sources.items()}
    plan = parse(Staging, {"files": [file.model_dump(exclude_none=True) for file in files.values()], "out": out})
    large = [path for path, file in files.items() if file.data is None]
    rest["id"] = str(rest.get("id") or uuid.uuid4())
    document = _document(rest)
    if large or out:
        name, place = place_of(settings)
        _by_agent(document, plan.model_copy(update={"place": name}))
    elif any("/" in path for path in files):
        _by_agent(document, plan)
    else:
        _by_flux(document, files)
    rest = {key: value for key, value in rest.items() if key not in ("command", *SIMPLE_FORM)} | {"jobspec": document}

    def upload() -> None:
        for path in large:
            place.put(sources[path], f"{rest['id']}/in/{path}")
            if _digest(sources[path]) != files[path].sha256:
                raise InvalidInput(f"{sources[path]} changed while it was copied: nothing is submitted")

    return rest, upload if large else None


def _document(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of the V1 document of a submission."""
    document = deepcopy(document_of(build(fields)))
    command = document["tasks"][0].get("command")
    if read(document).dialect not in ("V1", "canonical") or not isinstance(command, list):
        raise InvalidInput("files travel with a command, a script or a V1 jobspec only")
    system = document.setdefault("attributes", {}).setdefault("system", {})
    if system.get("cwd") is not None:
        raise InvalidInput("a job with files has a working directory of its own: leave out the other one")
    return document


def _listed(value: Any, name: str) -> list[str]:
    """Names of files, also a single one, as text."""
    names = [value] if isinstance(value, str | PurePath) else list(value) if isinstance(value, list | tuple) else value
    if names is None or (isinstance(names, list) and all(isinstance(one, str | PurePath) for one in names)):
        return [str(one) for one in names or ()]
    raise InvalidInput(f"field {name!r}: must be a list of names of files")


def _sources(given: Sequence[str]) -> dict[str, Path]:
    """From ``FILE[:PATH]`` to the files by their paths in the working directory."""
    found: dict[str, Path] = {}
    for one in given:
        name, colon, path = one.rpartition(":")
        source = Path(name) if colon and not Path(one).exists() else Path(one)
        path = _inside(path if source == Path(name) and colon else source.name, "stage-in")
        if path in found:
            raise InvalidInput(f"stage-in {one}: {path} is taken by {found[path]}")
        found[path] = source
    return found


def _inside(path: str, option: str) -> str:
    try:
        return inside(path)
    except ValueError as exc:
        raise InvalidInput(f"{option}: {exc}") from None


def _read(source: Path, path: str, small: int) -> StagedFile:
    try:
        if not source.is_file():
            why = "it is a folder: name its files" if source.is_dir() else "no such file"
            raise InvalidInput(f"stage-in {source}: {why}")
        size, mode = source.stat().st_size, source.stat().st_mode & 0o777
        data = entry(source.read_bytes(), 0o100000 | mode) if size <= small else None
        return StagedFile(path=path, mode=mode, size=size, sha256=None if data else _digest(source), data=data)
    except OSError as exc:
        raise InvalidInput(f"stage-in {source} cannot be read: {exc.strerror}") from None


def _digest(source: Path) -> str:
    with source.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _by_flux(document: dict[str, Any], files: Mapping[str, StagedFile]) -> None:
    """Small files alone are Flux's own (RFC 37): each node of the job has them in its temporary folder."""
    attached = document["attributes"]["system"].setdefault("files", {})
    if taken := sorted(attached.keys() & files.keys()):
        raise InvalidInput(f"stage-in: the job has a file {taken[0]} already")
    attached.update((path, file.data) for path, file in files.items())
    command = document["tasks"][0]["command"]
    first = 0
    if command[:2] == ["flux", "broker"]:  # an instance of Flux: its script runs there
        first = next(i for i, word in enumerate(command[2:], 2) if not word.startswith("-"))
    command[first:first] = ["env", "--chdir={{tmpdir}}"]


def _by_agent(document: dict[str, Any], staging: Staging) -> None:
    """All else is for the cluster's agent, which makes a working directory and copies."""
    user = document["attributes"].setdefault("user", {})
    user.setdefault("rainbow", {})["staging"] = staging.model_dump(exclude_none=True)
