"""An executor with files of jobs around the local one, with a place that is a folder; and jobs that have files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rainbow import trees
from rainbow.models.staging import StagingSettings
from rainbow_agents.executors.base import Capacity, Context, Work
from rainbow_agents.executors.local import LocalExecutor
from rainbow_agents.executors.testing import Rig
from rainbow_agents.staging import StagingExecutor

Make = Callable[..., Rig]


@pytest.fixture(name="make")
def make_staging(tmp_path: Path) -> Iterator[Make]:
    rigs: list[Rig] = []

    def made(folder: Path | None = tmp_path / "work", **settings: Any) -> Rig:
        settings.setdefault("places", {"shared": {"name": "folder", "options": {"path": str(tmp_path / "shared")}}})
        chosen = StagingSettings.model_validate(settings)
        context = Context("blue", "owner", tmp_path / "state", Capacity(1, 2, 0))
        rigs.append(
            Rig(lambda heard: StagingExecutor(lambda hear: LocalExecutor(context, hear), heard, chosen, folder))
        )
        return rigs[-1]

    (tmp_path / "shared").mkdir()
    yield made
    for rig in rigs:
        rig.executor.close()
    trees.remove(tmp_path / "shared")  # which a job may have nested too deep for pytest


def with_files(work: Work, **staging: Any) -> Work:
    (unit,) = work.units
    attributes = {**unit.document["attributes"], "user": {"rainbow": {"staging": staging}}}
    return replace(work, units=(replace(unit, document={**unit.document, "attributes": attributes}),))


def large(tmp_path: Path, work: Work, path: str, text: str, checksum_of: str | None = None) -> dict[str, Any]:
    """A file that lies at the place, and what the job says of it."""
    file = tmp_path / "shared" / work.mark.id / "in" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    digest = hashlib.sha256((checksum_of or text).encode()).hexdigest()
    return {"path": path, "mode": 0o640, "size": len(text), "sha256": digest}


def small(path: str, text: str, mode: int = 0o644) -> dict[str, Any]:
    return {"path": path, "mode": mode, "data": {"mode": mode, "encoding": "utf-8", "data": text}}


def run(rig: Rig, work: Work) -> Any:
    rig.executor.release([rig.submit(work)])
    return rig.wait_for("Ended", work.mark)


def left(tmp_path: Path, work: Work) -> Path:
    return tmp_path / "shared" / work.mark.id / "out"


__all__ = ["Make", "large", "left", "make_staging", "run", "small", "with_files"]
