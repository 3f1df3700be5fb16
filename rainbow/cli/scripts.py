"""Batch scripts on the command line: a script and its options as the fields of a submission."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rainbow.cli.render import output
from rainbow.errors import InvalidInput, TooLarge
from rainbow.models.job import SIMPLE_FORM

_MAX_BYTES = 1 << 20
_STDIN = Path("-")
_OVERRIDES = (
    "nodes",
    "tasks",
    "cores_per_task",
    "gpus_per_task",
    "duration",
    "name",
    "cwd",
    "environment",
    "image",
    "array",
)


def with_script(
    fields: Mapping[str, Any], path: Path, directives: Sequence[str], dialect: str | None, ignore: bool
) -> dict[str, Any]:
    """Replace the simple form in `fields` by the jobspec of the script at `path` (``-`` for standard input).

    Args:
        fields: A submission as the command line gives it; `command` holds the script's arguments.
        directives: Further options of ``flux batch``, each as one text.
        dialect: The dialect of the directives to read, None for the only one that the script uses.
        ignore: Submit also when a directive has no counterpart.

    Raises:
        InvalidInput: no such script, a directive that cannot be read, or one without a counterpart.
    """
    from rainbow.scripts import Overrides, read_script
    from rainbow.scripts.directives import DIALECTS

    if dialect is not None and dialect not in DIALECTS:
        raise InvalidInput(f"--directives {dialect!r}: choose one of {', '.join(DIALECTS)}")
    if fields.get("jobspec") is not None or fields.get("requires") is not None:
        raise InvalidInput("a script takes neither --jobspec nor --requires")
    arguments = fields.get("command") or []
    given: dict[str, Any] = {name: fields.get(name) for name in _OVERRIDES}
    overrides = Overrides(**given, directives=[word for text in directives for word in _split(text)], dialect=dialect)
    words = [arguments] if isinstance(arguments, str) else arguments
    text = _read(path)
    try:
        job = read_script(text, "batch" if path == _STDIN else path.name, words, overrides)
    except InvalidInput as exc:
        raise type(exc)(f"{path}: {exc}") from None
    ignore = ignore or job.lenient
    for line in job.refused:
        output.note(f"rainbow: {path}: {'ignored: ' if ignore else ''}{line}")
    if job.refused and not ignore:
        what = "1 directive of" if len(job.refused) == 1 else f"{len(job.refused)} directives of"
        verb = "has" if len(job.refused) == 1 else "have"
        raise InvalidInput(f"{what} {path} {verb} no counterpart: remove what is named, or give --ignore-unsupported")
    rest = {key: value for key, value in fields.items() if key not in (*SIMPLE_FORM, "command", "image")}
    rest |= {"jobspec": job.jobspec, "name": job.name, "array": job.array}
    rest["clusters"] = rest.get("clusters") or list(job.clusters) or None
    if rest.get("priority") is None:
        rest["priority"] = job.priority
    return rest


def document_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The jobspec that a submission with `fields` carries, or that is made of its simple form."""
    from rainbow.client import submission
    from rainbow.jobspec.compatibility import carrying

    request = submission.build(fields)
    document = submission.document_of(request)
    return carrying(document, request.compatibility) if request.compatibility else document


def waits_of(fields: Mapping[str, Any]) -> list[str]:
    """What a submission with `fields` waits for beside room, and its array, a line each."""
    from datetime import datetime

    from rainbow.client.submission import build
    from rainbow.jobspec import read
    from rainbow.models.arrays import read_array
    from rainbow.models.dependencies import read_dependencies, written

    request = build(fields)
    spec = read(request.jobspec) if request.jobspec is not None else None
    after = (*read_dependencies(request.dependency or ()), *(spec.after if spec else ()))
    begin = max(request.begin_time or 0.0, (spec.begin if spec else None) or 0.0)
    lines = [f"waits for {', '.join(written(after))}"] if after else []
    if request.array is not None:
        lines.append(f"array of {read_array(request.array).size} elements: {request.array}")
    return [*lines, f"starts at {datetime.fromtimestamp(begin).isoformat()} at the earliest"] if begin else lines


def _read(path: Path) -> str:
    try:
        if path == _STDIN:
            data = sys.stdin.buffer.read(_MAX_BYTES + 1)
        else:
            with path.open("rb") as file:
                data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise TooLarge(f"{path} has more than {_MAX_BYTES} bytes: a script that large is no script")
        return data.decode()
    except OSError as exc:
        raise InvalidInput(f"script {path} cannot be read: {exc.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidInput(f"script {path} cannot be read: it is not UTF-8 text") from None


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        raise InvalidInput(f"--directive {text!r}: the quotes are not closed") from None
