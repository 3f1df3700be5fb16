"""What is to be copied for a job, and its files in its folder."""

from __future__ import annotations

import base64
import hashlib
import os
from pathlib import Path
from typing import Any

from rainbow.errors import InvalidInput, NotFound
from rainbow.models.ids import element_id
from rainbow.models.staging import StagedFile, Staging
from rainbow.models.wire import parse
from rainbow_agents.executors.base import SubmissionKey, Work


def name_of(mark: SubmissionKey) -> str:
    """The name of a job's folder."""
    return f"{mark.id}.{mark.attempt}.{mark.claim}"


class Plan(Staging):
    """What is to be copied for a job. Elements of an array have their own folder (`element`) in what is left."""

    job: str
    element: str = ""


def plan_of(work: Work, wanted: object) -> Plan:
    found = parse(Staging, wanted).model_dump()
    if work.element is None:
        return Plan(job=work.mark.id, **found)
    return Plan(job=work.element.array, element=f"{work.element.index}/", **found)


def read_plan(folder: Path, mark: SubmissionKey) -> Plan:
    """Raises InvalidInput where it is not this job's any more: the job may write there. OSError."""
    try:
        plan = Plan.model_validate_json((folder / "plan.json").read_bytes())
        whose = element_id(plan.job, int(plan.element.rstrip("/"))) if plan.element else plan.job
    except ValueError:
        whose = None
    if whose != mark.id:
        raise InvalidInput("the job changed the list of its files")
    return plan


def in_folder(document: dict[str, Any], cwd: str) -> dict[str, Any]:
    attributes = document["attributes"]
    return {**document, "attributes": {**attributes, "system": {**attributes["system"], "cwd": cwd}}}


def content_of(file: StagedFile) -> bytes | None:
    if file.data is None:
        if file.sha256 is None:
            raise ValueError(f"the file {file.path} has neither data nor a checksum")
        return None
    data = str(file.data.get("data", ""))
    return base64.b64decode(data, validate=True) if file.data.get("encoding") == "base64" else data.encode()


def write(path: Path, content: bytes, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)


def take(source: Path, target: Path, file: StagedFile) -> None:
    """Move a file that was fetched to its path, if it is the one that the job was submitted with."""
    if source.is_symlink() or not source.is_file():
        raise NotFound(f"{file.path} is not at the place")
    with source.open("rb") as opened:
        if hashlib.file_digest(opened, "sha256").hexdigest() != file.sha256:
            raise InvalidInput(f"{file.path} does not match its checksum: it changed after it was submitted")
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(source, target)
    target.chmod(file.mode)


def reason_of(exc: Exception) -> str:
    """One line, also where a path in it is the job's to make."""
    found = f"{exc.filename}: {exc.strerror}" if isinstance(exc, OSError) and exc.filename else str(exc)
    return found if len(found) <= 500 else f"{found[:200]} ... {found[-200:]}"
