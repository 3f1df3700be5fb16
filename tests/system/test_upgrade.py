"""The release before and this one, together on the same broker and store, under load: forward, and back again."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tarfile
import tempfile
import uuid
from io import BytesIO
from pathlib import Path

import pytest

from job_load import Load
from processes import Site
from rainbow.client import Client
from rainbow.errors import RainbowError
from rainbow.settings import Settings
from servers import wait_until

ROOT = Path(__file__).parents[2]
#: The commit of the release before.
BEFORE = "ed45ca178623810b9797f91ef2028814fd672f0e"

pytestmark = pytest.mark.timeout(590)


def _commit() -> str:
    done = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--verify", "--quiet", f"{BEFORE}^{{commit}}"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"no git history here, or not back to {BEFORE}: the release before cannot be built")
    return done.stdout.strip()


@pytest.fixture(scope="module")
def release_before() -> Path:
    """A folder with the packages of the release before, built from its commit, kept for the next run."""
    commit = _commit()
    base = Path(tempfile.gettempdir()) / f"rainbow-tests-release-{commit[:12]}-{os.getuid()}"
    base.mkdir(mode=0o700, exist_ok=True)
    packages = base / "packages"
    with open(base / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not packages.exists():
            archive = subprocess.run(["git", "-C", str(ROOT), "archive", commit], capture_output=True, check=True)
            with tarfile.open(fileobj=BytesIO(archive.stdout)) as tar:
                tar.extractall(base / "source", filter="data")
            partial = base / "partial"
            for command in (
                ["wheel", "--no-deps", "--wheel-dir", str(base), str(base / "source")],
                [
                    "install",
                    "--no-deps",
                    "--target",
                    str(partial),
                    "--find-links",
                    str(base),
                    "--no-index",
                    "rainbow-hpc",
                ],
            ):
                done = subprocess.run(
                    [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *command],
                    capture_output=True,
                    text=True,
                    timeout=200,
                    check=False,
                )
                if done.returncode:
                    pytest.skip(f"the release before cannot be built: {done.stderr.strip()[-300:]}")
            partial.rename(packages)
    return packages


def test_forward_and_back_under_load(release_before: Path, amqp_url: str, redis_url: str, tmp_path: Path) -> None:
    """Workers and agents of both releases share the work, and each confirmed job starts once and ends."""
    old = {"PYTHONPATH": str(release_before), "PYTHONSAFEPATH": "1"}  # not from the working directory
    said = subprocess.run(
        [sys.executable, "-c", "import rainbow, rainbow_workers; print(rainbow.__file__, rainbow_workers.__file__)"],
        env={**os.environ, **old},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert said.count(str(release_before)) == 2, "the old programs run the old code"
    site = Site(tmp_path, amqp_url, redis_url, f"rainbow-test-{uuid.uuid4().hex[:10]}:", log_level="info")
    settings = {"broker": {"url": amqp_url}, "token": site.token("root", "admin")}
    with site, Client(settings=Settings.model_validate(settings), timeout=20) as client:

        def alive(*names: str) -> None:
            def look() -> bool:
                try:
                    return {c.name for c in client.clusters() if c.alive} >= set(names)
                except RainbowError:
                    return False

            wait_until(look, 120, what=f"{names} are alive")

        first = site.start("scheduler-old", "rainbow_workers.cli", env=old)
        site.agent("blue", report_every=1.0, env=old)
        alive("blue")
        # Until its cluster comes they are in hold queues of the release before, and it is gone by then.
        held = [client.submit(command=["true"], clusters=["green"], hold=500.0).id for _ in range(5)]
        wait_until(lambda: all(r is not None and r.state == "held" for r in client.status(held)), 60, what="all held")
        with Load(client) as load:
            load.more(50)
            second = site.scheduler(name="scheduler-new")
            site.agent("red", report_every=1.0)
            alive("blue", "red")
            load.more(100)
            first.terminate()
            first.wait(30)
            site.agent("green", report_every=1.0)
            wait_until(
                lambda: all(r is not None and r.state == "completed" for r in client.status(held)),
                120,
                every=0.5,
                what="what the release before held has run",
            )
            load.more(100)
            site.start("scheduler-again", "rainbow_workers.cli", env=old)
            # The release before records from a queue of its own: what comes before it is there is this one's to record.
            log = tmp_path / "scheduler-again.log"
            wait_until(
                lambda: "queue=rainbow.recorder" in log.read_text(), 60, what="the recorder of the release before"
            )
            load.more(50)
            second.terminate()
            second.wait(30)
            load.more(100)

        def started() -> list[str]:
            return [job for job, _ in site.starts(["blue", "red", "green"])]

        wait_until(lambda: set(load.confirmed) <= set(started()), 150, every=0.2, what="all jobs started")
        assert len(started()) == len(set(started())), "a job started twice"
        both = [len(site.starts([name])) for name in ("blue", "red")]
        assert all(both), f"both clusters had jobs: {both}"

        def open_jobs() -> list[str]:
            records = [
                r
                for start in range(0, len(load.confirmed), 500)
                for r in client.status(load.confirmed[start : start + 500])
            ]
            return [job for job, r in zip(load.confirmed, records, strict=True) if r is None or r.state != "completed"]

        wait_until(lambda: not open_jobs(), 240, every=0.5, what="all jobs are recorded as completed")
