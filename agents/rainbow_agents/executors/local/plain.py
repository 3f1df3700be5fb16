"""What the local executor makes of a V1 jobspec: plain processes, the files that the job brings, no Flux."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rainbow_agents.executors.base import Work
from rainbow_agents.executors.environment import minimal

_CALLS_FLUX = re.compile(r"^[^#\n]*\bflux\s+[a-z]", re.MULTILINE)


def unit(work: Work, document: Mapping[str, Any], files: Path, path: str, max_tasks: int) -> dict[str, Any]:
    """One job of Flux as `runner` takes it.

    Args:
        work: The job it is of.
        document: Its V1 jobspec.
        files: The folder in which `write_files` puts what the job brings.
        path: The PATH of the job, unless its environment has one.
        max_tasks: The most processes at a time.

    Raises:
        ValueError: why the job cannot run without Flux, or on this machine.
    """
    system = document["attributes"]["system"]
    brought = system.get("files") or {}
    contents(brought)
    words, is_batch = _without_flux([str(word) for word in document["tasks"][0]["command"]], brought)
    if work.image:
        raise ValueError(f"the job wants image {work.image!r}: the local executor runs no containers")
    cwd = system.get("cwd")
    if cwd is not None and not os.path.isdir(cwd):
        raise ValueError(f"its working folder {cwd!r} does not exist here")
    ntasks = 1 if is_batch else _ntasks(document)
    if ntasks > max_tasks:
        raise ValueError(f"the job has {ntasks} tasks: at most {max_tasks} run at a time here")
    streams = _streams(system)
    return {
        "command": _rendered(words, files, work),
        "ntasks": ntasks,
        "cwd": cwd,
        "environment": {
            **minimal(work.mark, path),
            "FLUX_JOB_SIZE": str(ntasks),
            **(system.get("environment") or {}),
        },
        "duration": float(system.get("duration") or 0.0),
        "streams": dict(zip(streams, _rendered(list(streams.values()), files, work), strict=True)),
    }


def write_files(folder: Path, work: Work) -> None:
    """Write the files that `work` brings into `folder`, which only the job's user can read."""
    for one in work.units:
        for name, (mode, content) in contents(one.document["attributes"]["system"].get("files") or {}).items():
            folder.mkdir(mode=0o700, exist_ok=True)
            (folder / name).write_bytes(content)
            (folder / name).chmod(mode)


def contents(files: Mapping[str, Any]) -> dict[str, tuple[int, bytes]]:
    """Mode and content of each file (RFC 37).

    Raises:
        ValueError: a name that leaves the folder, or an entry that cannot be read.
    """
    found: dict[str, tuple[int, bytes]] = {}
    for name, value in files.items():
        if "/" in name or name in ("", ".", "..") or "\0" in name:
            raise ValueError(f"the file name {name!r} is not one name")
        entry = value if isinstance(value, Mapping) and "data" in value else {"data": value}
        data, mode = entry["data"], entry.get("mode")
        if not isinstance(data, str):
            content = json.dumps(data).encode()
        elif entry.get("encoding") == "base64":
            try:
                content = base64.b64decode(data, validate=True)
            except ValueError:
                raise ValueError(f"the file {name!r} is not what its encoding says") from None
        else:
            content = data.encode()
        found[name] = ((mode if isinstance(mode, int) else 0o600) & 0o777, content)
    return found


def _without_flux(words: list[str], files: Mapping[str, Any]) -> tuple[list[str], bool]:
    """The command, of a batch job its script; and whether it is one. Raises ValueError."""
    if words[:2] != ["flux", "broker"]:
        return words, False
    rest = words[2:]
    while rest and rest[0].startswith("-"):
        rest.pop(0)
    script = files.get("script")
    if not rest or not isinstance(script, Mapping):
        raise ValueError("the job is an instance of Flux, and there is no Flux here")
    if isinstance(script.get("data"), str) and _CALLS_FLUX.search(script["data"]):
        raise ValueError("its script calls flux, and there is no Flux here")
    return rest, True


#: What Flux's shell fills in; as in Flux, all else between braces is the job's own (``docker ps --format '{{.ID}}'``).
_OF_FLUX = re.compile(r"\{\{(id\.\w+|jobid|nnodes|ntasks|size|taskid|(task|node|env)\.\w+)\}\}")


def _rendered(words: Sequence[str], files: Path, work: Work) -> list[str]:
    """`words` with Flux's places filled in, and all other text as it is. Raises ValueError for one of Flux's that is
    not known here.
    """
    known = {"{{tmpdir}}": str(files), "{{id}}": work.mark.id, "{{name}}": work.name or "job"}
    made = []
    for word in words:
        for place, value in known.items():
            word = word.replace(place, value)
        if _OF_FLUX.search(word):
            raise ValueError(f"{word!r} has a place that only Flux fills in")
        made.append(word)
    return made


def _streams(system: Mapping[str, Any]) -> dict[str, str]:
    """The files for standard output and error: both go to that of the output if only that is named."""
    options = (system.get("shell") or {}).get("options") or {}
    found: dict[str, str] = {}
    for stream in ("stdout", "stderr"):
        entry = (options.get("output") or {}).get(stream) or {}
        if entry.get("type") == "file" and isinstance(entry.get("path"), str):
            found[stream] = entry["path"]
    if "stdout" in found:
        found.setdefault("stderr", found["stdout"])
    if (options.get("input") or {}).get("stdin"):
        raise ValueError("standard input from a file needs Flux")
    return found


def _ntasks(document: Mapping[str, Any]) -> int:
    """How many tasks a V1 document starts."""
    count = document["tasks"][0]["count"]
    if "total" in count:
        return int(count["total"])
    slots = 0
    level: list[tuple[Mapping[str, Any], int]] = [(r, 1) for r in document["resources"]]
    while level:
        resource, times = level.pop()
        number = resource["count"]
        times *= int(number["min"] if isinstance(number, Mapping) else number)
        if resource["type"] == "slot":
            slots += times
        else:
            level += [(r, times) for r in resource.get("with", ())]
    return max(1, slots) * int(count.get("per_slot", 1))
