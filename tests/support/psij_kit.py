"""What PSI/J's own tests of an executor import, as a plugin of pytest: ``pytest -p psij_kit``.

Their package has the tests without the modules that they share; these few names stand in for those.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from psij import Job, JobAttributes, JobExecutor, JobState, JobStatus

for _name in ("_test_tools", "executor_test_params"):
    sys.modules[_name] = sys.modules[__name__]


class ExecutorTestParams:
    """The executor under test, as their tests are handed it."""

    executor, launcher = "rainbow", "single"


@pytest.fixture(params=["rainbow"])
def execparams() -> ExecutorTestParams:
    return ExecutorTestParams()


def _get_executor_instance(params: ExecutorTestParams, job: Any = None) -> JobExecutor:
    if job is not None:
        job.spec.launcher = params.launcher
        job.spec.attributes = JobAttributes(custom_attributes={"rainbow.ignore_unsupported": True})
    return JobExecutor.get_instance(params.executor, url=os.environ["RAINBOW_CONFIG"])


def _get_timeout(params: ExecutorTestParams) -> timedelta:
    return timedelta(seconds=60)


def _make_test_dir() -> None:
    (Path.home() / ".psij" / "test").mkdir(parents=True, exist_ok=True)


@contextmanager
def _deploy(path: str) -> Iterator[Path]:
    _make_test_dir()
    with tempfile.TemporaryDirectory(dir=Path.home() / ".psij" / "test") as folder:
        yield Path(shutil.copy(path, folder))


def assert_completed(job: Job, status: JobStatus | None, attached: bool = False) -> None:
    assert status is not None
    assert status.state == JobState.COMPLETED, status
