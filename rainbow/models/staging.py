"""Files that travel with a job: the settings `staging`, and what a jobspec says of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from rainbow import paths
from rainbow.models.images import AlgorithmSettings
from rainbow.models.wire import OpenWire, Text


class StagingSettings(BaseModel):
    """Files that travel with jobs. `places` are shared by submitters and agents, under names that both use.

    A submitter's files of more than `small` bytes, and what jobs leave, go through `place` (the only one if left out).
    An agent takes and leaves files only at its own `places`; each job with files gets a working directory in `folder`,
    which all its nodes see. That of a job that did not complete is kept for `keep` seconds.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    places: dict[str, AlgorithmSettings] = Field(default_factory=dict)
    place: str | None = None
    small: Annotated[int, Field(ge=0, le=1 << 20)] = 65_536
    folder: Annotated[Path, BeforeValidator(lambda v: paths.expand(v) if isinstance(v, str) else v)] | None = None
    keep: Annotated[float, Field(ge=0)] = 86_400.0


#: These would be lost on the way, or change what a terminal or a log shows.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
#: Folders of a path, and files that a job names, at most: more are for an archive.
_DEPTH, _FILES = 64, 1000


def inside(path: str) -> str:
    """`path` in its shortest form. Raises ValueError where it does not stay inside the working directory."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts or _CONTROL.search(path) or not parts:
        raise ValueError(f"{path!r} is no path inside the working directory")
    if len(path.encode()) > 1024 or len(parts) > _DEPTH or any(len(part.encode()) > 255 for part in parts):
        raise ValueError(f"{path[:80]!r}... is too long for a path")
    return "/".join(parts)


InsidePath = Annotated[str, AfterValidator(inside)]


class StagedFile(OpenWire):
    """A file that a job needs at `path`: `data` has it as RFC 37 does, else it is fetched from the place."""

    path: InsidePath
    mode: Annotated[int, Field(ge=0, le=0o777)] = 0o600
    size: Annotated[int, Field(ge=0)] = 0
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    data: dict[str, Any] | None = None


def staging_of(document: Mapping[str, Any]) -> Any:
    """What a jobspec says of files, unchecked; None where it says nothing."""
    found: Any = document
    for name in ("attributes", "user", "rainbow", "staging"):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


class Staging(OpenWire):
    """What stands at ``attributes.user.rainbow.staging``. Names at the place begin with the id of the job."""

    place: Text | None = None
    files: list[StagedFile] = Field(default_factory=list, max_length=_FILES)
    out: list[InsidePath] = Field(default_factory=list, max_length=_FILES)

    @model_validator(mode="after")
    def _apart(self) -> Self:
        taken: set[str] = set()
        folders = {str(folder) for file in self.files for folder in PurePosixPath(file.path).parents}
        for path in (file.path for file in self.files):
            if path in taken or path in folders:
                raise ValueError(f"{path} is taken by another file")
            taken.add(path)
        return self
