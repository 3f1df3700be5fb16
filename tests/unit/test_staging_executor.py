"""Files of jobs around an executor: what is there before a job, what is left, and an agent that dies between."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rainbow.errors import InvalidSettings
from rainbow.models.arrays import Element
from rainbow_agents.executors.base import Held
from rainbow_agents.staging import name_of
from stagingrig import Make, large, left, make_staging, run, small, with_files

__all__ = ["make_staging"]


def test_files_are_there_and_what_is_left_comes_to_its_place(make: Make, tmp_path: Path) -> None:
    rig = make()
    work = rig.work("./tool conf/small && cat big && mkdir -p r/s && cat big > r/s/one && ln -s / r/root")
    tool = small("tool", '#!/bin/sh\ncat "$1"', 0o755)
    work = with_files(work, place="shared", files=[tool, small("conf/small", "1"), large(tmp_path, work, "big", "23")])
    work.units[0].document["attributes"]["user"]["rainbow"]["staging"]["out"] = ["r"]
    ended = run(rig, work)
    assert (ended.state, ended.output) == ("completed", "123")
    assert (left(tmp_path, work) / "r/s/one").read_text() == "23"
    assert not (left(tmp_path, work) / "r/root").exists()
    rig.until(lambda: not list((tmp_path / "work").iterdir()), "removal of the working directory")
    assert not (tmp_path / "shared" / work.mark.id / "in").exists()


@pytest.mark.parametrize(
    ("staging", "code", "words"),
    [
        ({"files": [small("../x", "")]}, "bad-spec", "'../x' is no path inside the working directory"),
        ({"files": [small("/etc/x", "")]}, "bad-spec", "'/etc/x' is no path inside"),
        ({"files": [small("a", ""), small("a/b", "")]}, "bad-spec", "a is taken by another file"),
        ({"files": [small("a" * 300, "")]}, "bad-spec", "too long for a path"),
        ({"files": [{"path": "a"}]}, "bad-spec", "the file a has neither data nor a checksum"),
        ({"out": ["x/../../y"]}, "bad-spec", "'x/../../y' is no path inside"),
        ({"files": "x"}, "bad-spec", "must be a list"),
        ({"place": "elsewhere", "out": ["x"]}, "no-fit", "this cluster has no staging place 'elsewhere'"),
    ],
)
def test_what_cannot_be_is_refused(make: Make, staging: dict[str, Any], code: str, words: str) -> None:
    rig = make()
    work = with_files(rig.work("true"), **staging)
    rig.executor.submit([work])
    refused = rig.wait_for("Refused", work.mark)
    assert refused.code == code
    assert words in refused.detail


def test_a_cluster_without_a_folder_takes_none(make: Make) -> None:
    rig = make(folder=None)
    work = with_files(rig.work("true"), out=["x"])
    rig.executor.submit([work])
    assert "staging.folder" in rig.wait_for("Refused", work.mark).detail
    assert run(rig, rig.work("true")).state == "completed"


def test_a_place_with_wrong_options_is_named(make: Make) -> None:
    with pytest.raises(InvalidSettings, match=r"staging.places.here: staging folder takes path"):
        make(places={"here": {"name": "folder"}})


def test_a_job_whose_files_do_not_come_never_starts(make: Make, tmp_path: Path) -> None:
    rig = make()
    changed = rig.work("echo ran")
    changed = with_files(changed, place="shared", files=[large(tmp_path, changed, "big", "23", checksum_of="24")])
    link = rig.work("echo ran")
    file = large(tmp_path, link, "big", "root")
    target = tmp_path / "shared" / link.mark.id / "in" / "big"
    target.unlink()
    target.symlink_to("/etc/hostname")
    nothing = rig.work("echo ran")
    missing = {**large(tmp_path, nothing, "big", "23"), "path": "other"}
    for work, words in (
        (changed, "stage-in: big does not match its checksum"),
        (with_files(link, place="shared", files=[file]), "stage-in: big is not at the place"),
        (with_files(nothing, place="shared", files=[missing]), "stage-in: other is not at the place"),
    ):
        ended = run(rig, work)
        assert (ended.state, ended.code, ended.output) == ("failed", "staging", None)
        assert ended.detail.startswith(words)


def test_what_a_job_does_not_leave_or_leads_out_fails_it(make: Make, tmp_path: Path) -> None:
    rig = make()
    ended = run(rig, with_files(rig.work("echo done"), place="shared", out=["result"]))
    assert (ended.state, ended.detail) == ("failed", "stage-out: the job left no result")
    out = with_files(rig.work("ln -s /etc result"), place="shared", out=["result"])
    ended = run(rig, out)
    assert (ended.state, ended.detail) == ("failed", "stage-out: result leads out of the working directory")
    assert not left(tmp_path, out).exists()


def test_a_failed_job_leaves_what_it_has_and_its_folder_for_a_while(make: Make, tmp_path: Path) -> None:
    rig = make(keep=3600)
    work = with_files(rig.work("echo log > log; exit 3"), place="shared", out=["log", "result"])
    ended = run(rig, work)
    assert (ended.state, ended.returncode) == ("failed", 3)
    assert (left(tmp_path, work) / "log").read_text() == "log\n"
    folder = tmp_path / "work" / name_of(work.mark)
    rig.until(lambda: not (folder / "plan.json").exists(), "end of copying")
    rig.executor.recover([])
    assert (folder / "work" / "log").exists()
    os.utime(folder, (0, 0))
    rig.executor.recover([])
    assert not folder.exists()


def test_an_agent_that_died_leaves_files_to_the_next_one(make: Make, tmp_path: Path) -> None:
    rig = make()
    before = rig.work("cat big")
    before = with_files(before, place="shared", files=[large(tmp_path, before, "big", "here")])
    held = rig.submit(before)
    running = with_files(rig.work("until [ -e go ]; do sleep 0.02; done; echo x > x"), place="shared", out=["x"])
    goes_on = rig.submit(running)
    rig.executor.release([goes_on])
    rig.wait_for("Started", running.mark)
    rig.executor.close()
    folder = tmp_path / "work" / name_of(running.mark)
    (folder / "work" / "go").touch()
    rig.until(lambda: (folder / "work" / "x").exists(), "end of the job")
    time.sleep(0.1)
    rig.reopen()
    found = {job.mark: job for job in rig.executor.recover([held, goes_on]).jobs}
    assert found[before.mark].phase == "held"
    assert found[running.mark].phase == "running"
    assert rig.wait_for("Ended", running.mark).state == "completed"
    assert (left(tmp_path, running) / "x").read_text() == "x\n"
    rig.executor.release([held])
    assert rig.wait_for("Ended", before.mark).output == "here"


def test_cancelled_before_its_files_came(make: Make, tmp_path: Path) -> None:
    rig = make()
    work = rig.work("true")
    work = with_files(work, place="shared", files=[large(tmp_path, work, "big", "1")], out=["result"])
    held: Held = rig.submit(work)
    rig.executor.cancel([held], "by its user")
    assert rig.wait_for("Ended", work.mark).state == "cancelled"


def test_elements_of_an_array_share_what_they_need(make: Make, tmp_path: Path) -> None:
    rig = make()
    base = rig.work("cat big; echo $0 > x")
    for index in range(2):
        element = Element(array=base.mark.id, index=index)
        work = replace(base, mark=replace(base.mark, id=element.id), element=element)
        work = with_files(work, place="shared", files=[large(tmp_path, base, "big", "same")], out=["x"])
        assert run(rig, work).output == "same"
        assert (tmp_path / "shared" / base.mark.id / "out" / str(index) / "x").exists()
