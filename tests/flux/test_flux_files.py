"""Jobs with files beside a real Flux: in the message, by Flux itself, through a place; whatever becomes of the job."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from fluxrig import end, flux_maker
from processes import Site
from rainbow.client import Client
from rainbow.models.staging import StagingSettings
from rainbow.settings import load
from rainbow_agents.executors.base import Held, Work
from rainbow_agents.executors.testing import Rig
from rainbow_agents.staging import StagingExecutor, name_of
from rig import eventually, resources
from servers import RabbitServer, RedisServer, Run
from stagingrig import large, left, run, small, with_files


@pytest.fixture(params=["flux", "flux-cli"])
def beside(request: pytest.FixtureRequest, flux_uri: str, flux_bindings: None, tmp_path: Path) -> Iterator[Rig]:
    (tmp_path / "shared").mkdir()
    (tmp_path / "state").mkdir()
    places = {"shared": {"name": "folder", "options": {"path": str(tmp_path / "shared")}}}
    settings = StagingSettings.model_validate({"places": places})
    maker = flux_maker(request.param, tmp_path / "state", uuid.uuid4().hex[:16])
    rig = Rig(lambda heard: StagingExecutor(maker, heard, settings, tmp_path / "work"))
    yield rig
    end(rig)


def started(rig: Rig, tmp_path: Path, work: Work) -> Held:
    """The job, released, once it has written its `out`."""
    held = rig.submit(work)
    rig.executor.release([held])
    eventually(lambda: (tmp_path / "work" / name_of(work.mark) / "work" / "out").exists(), 60)
    return held


def test_files_are_there_and_what_is_left_goes_to_the_place(beside: Rig, tmp_path: Path) -> None:
    work = beside.work("./in/run < big > sum/size; pwd > sum/where", cores=2, cwd=None)
    files = [small("in/run", "#!/bin/sh\nwc -c\n", 0o755), large(tmp_path, work, "big", "x" * 100_000)]
    files.append(small("sum/made", ""))
    work = with_files(work, place="shared", files=files, out=["sum"])
    ended = run(beside, work)
    assert (ended.state, ended.returncode, ended.code) == ("completed", 0, None)
    assert (left(tmp_path, work) / "sum" / "size").read_text().strip() == "100000"
    where = tmp_path / "work" / name_of(work.mark)
    assert (left(tmp_path, work) / "sum" / "where").read_text().strip() == str(where / "work")
    eventually(lambda: not where.exists(), 60)
    assert not (tmp_path / "shared" / work.mark.id / "in").exists()


def test_a_failed_job_leaves_what_it_has(beside: Rig, tmp_path: Path) -> None:
    work = with_files(beside.work("echo half > out; exit 3", cwd=None), place="shared", out=["out", "never"])
    ended = run(beside, work)
    assert (ended.state, ended.returncode) == ("failed", 3)
    assert (left(tmp_path, work) / "out").read_text() == "half\n"
    assert (tmp_path / "work" / name_of(work.mark) / "work" / "out").exists()


def test_less_than_promised_is_a_failure(beside: Rig) -> None:
    ended = run(beside, with_files(beside.work("true", cwd=None), place="shared", out=["never"]))
    assert (ended.state, ended.code, ended.detail) == ("failed", "staging", "stage-out: the job left no never")


def test_a_cancelled_job_leaves_what_it_has(beside: Rig, tmp_path: Path) -> None:
    work = with_files(beside.work("echo half > out; exec sleep 300", cwd=None), place="shared", out=["out"])
    beside.executor.cancel([started(beside, tmp_path, work)], "enough")
    assert beside.wait_for("Ended", work.mark).state == "cancelled"
    assert (left(tmp_path, work) / "out").read_text() == "half\n"


def test_a_job_that_was_cancelled_while_it_waited_keeps_what_it_needs(beside: Rig, tmp_path: Path) -> None:
    filler = with_files(beside.work("touch out; exec sleep 300", cores=8, cwd=None), place="shared", out=["out"])
    held = started(beside, tmp_path, filler)
    work = beside.work("cat big > out", cores=8, cwd=None)
    work = with_files(work, place="shared", files=[large(tmp_path, work, "big", "x")], out=["out"])
    waiting = beside.submit(work)
    folder = tmp_path / "work" / name_of(work.mark)
    beside.executor.release([waiting])
    eventually(lambda: (folder / "ready").exists(), 60)
    eventually(lambda: getattr(beside.found(waiting), "phase", None) == "queued", 60)
    beside.executor.cancel([waiting], "enough")
    assert beside.wait_for("Ended", work.mark).state == "cancelled"
    assert (tmp_path / "shared" / work.mark.id / "in" / "big").exists()
    assert not left(tmp_path, work).exists()
    eventually(lambda: not folder.exists(), 60)
    beside.executor.cancel([held], "enough")


def test_a_changed_file_is_not_given_to_the_job(beside: Rig, tmp_path: Path) -> None:
    work = beside.work("touch out", cwd=None)
    work = with_files(work, place="shared", files=[large(tmp_path, work, "big", "new", "old")], out=["out"])
    ended = run(beside, work)
    assert (ended.state, ended.code) == ("failed", "staging")
    assert "does not match its checksum" in ended.detail
    assert not left(tmp_path, work).exists()
    assert beside.count("Started", work.mark) == 0


def test_files_of_a_job_that_ended_without_its_agent(beside: Rig, tmp_path: Path) -> None:
    script = "echo one > out; while [ ! -e go ]; do sleep 0.1; done; echo two >> out"
    work = with_files(beside.work(script, cwd=None), place="shared", out=["out"])
    held = started(beside, tmp_path, work)
    beside.wait_for("Started", work.mark)
    beside.executor.close()
    (tmp_path / "work" / name_of(work.mark) / "work" / "go").touch()
    beside.reopen()

    def recovered() -> bool:
        found = beside.found(held)
        return (found is not None and found.ended is not None) or beside.count("Ended", work.mark) > 0

    eventually(recovered, 60)
    assert (left(tmp_path, work) / "out").read_text() == "one\ntwo\n"


@pytest.fixture
def site(
    flux_uri: str, rabbit_server: RabbitServer, redis_server: RedisServer, test_run: Run, tmp_path: Path
) -> Iterator[Site]:
    redis = pytest.importorskip("redis")
    url = rabbit_server.vhost_url(rabbit_server.kept_vhost(test_run.name))
    prefix = f"rainbow-test-{uuid.uuid4().hex[:10]}:"
    (tmp_path / "shared").mkdir()
    places = {"shared": {"name": "folder", "options": {"path": str(tmp_path / "shared")}}}
    staging = {"places": places, "folder": str(tmp_path / "jobs")}
    with Site(tmp_path, url, redis_server.url, prefix, log_level="warning", staging=staging) as site:
        site.scheduler()
        graph = resources(nodes=1, cores=8, host=os.uname().nodename)
        site.agent("blue", graph, executor="flux-cli", options={}, report_every=1.0)
        with Client(settings=load(site.config, {})) as admin:
            site.served(admin, 1)
        yield site
    with redis.Redis.from_url(redis_server.url) as store:
        for key in list(store.scan_iter(match=f"{prefix}*", count=1000)):
            store.delete(key)


def test_from_the_command_line(site: Site, tmp_path: Path) -> None:
    config = site.settings_of("alice")
    (tmp_path / "numbers").write_text("1\n2\n3\n")
    (tmp_path / "large").write_bytes(b"x" * 100_000)
    # Small ones alone are Flux's own: each task finds them.
    words = ["submit", "--wait", "-n", "2", "--stage-in", f"{tmp_path}/numbers:n", "wc", "-l", "n"]
    assert site.cli(*words, config=config).stdout == "3 n\n3 n\n"
    words = ["submit", "--stage-in", f"{tmp_path}/large:in/l", "--stage-out", "sums"]
    job = site.cli(*words, "sh", "-c", "mkdir sums; wc -c < in/l > sums/size", config=config).stdout.strip()
    site.cli("wait", job, "--timeout", "60", config=config)
    assert site.cli("fetch", job, str(tmp_path / "got"), config=config).stdout == "sums/size\n"
    assert (tmp_path / "got" / "sums" / "size").read_text().strip() == "100000"
    assert not list((tmp_path / "shared").iterdir())
