"""Hostile and unlucky jobs with files: none holds up its agent, takes what is not its own, or loses what it needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rainbow.errors import InvalidInput, Unavailable
from rainbow.models.staging import Staging
from rainbow.models.wire import parse
from rainbow.staging.folder import Folder
from rainbow_agents.executors.base import Capacity, Context, Found, SubmissionKey
from rainbow_agents.executors.local import LocalExecutor
from rainbow_agents.executors.testing import Rig
from rainbow_agents.staging import name_of
from stagingrig import Make, large, left, make_staging, run, small, with_files

__all__ = ["make_staging"]


DEEP = f"""{sys.executable} -c "import os
os.mkdir('result'); os.chdir('result')
for _ in range(1500): os.mkdir('d'); os.chdir('d')"
"""


def folder_of(tmp_path: Path, mark: SubmissionKey) -> Path:
    return tmp_path / "work" / name_of(mark)


# -- what a submitter sends --------------------------------------------------------------------------------


@pytest.mark.parametrize("user", ["x", ["x"], {"rainbow": "x"}, {"rainbow": ["x"]}, {"rainbow": {"staging": None}}])
def test_what_a_job_says_of_itself_does_not_take_its_agent_down(make: Make, user: Any) -> None:
    rig = make()
    work = rig.work("true")
    (unit,) = work.units
    document = {**unit.document, "attributes": {**unit.document["attributes"], "user": user}}
    assert run(rig, replace(work, units=(replace(unit, document=document),))).state == "completed"


def test_many_files_are_checked_at_once() -> None:
    began = time.process_time()
    with pytest.raises(InvalidInput, match="at most 1000"):
        parse(Staging, {"files": [{"path": f"f{i}"} for i in range(20_000)]})
    parse(Staging, {"files": [{"path": f"{'d/' * 60}{i}"} for i in range(1000)]})
    assert time.process_time() - began < 5
    with pytest.raises(InvalidInput, match="too long for a path"):
        parse(Staging, {"out": ["d/" * 100]})


@pytest.mark.parametrize("path", ["a\nb", "a\x1b[2J", "a\0", "\x7f", "\x9b2J", "\ud800"])
def test_paths_have_no_control_characters(path: str) -> None:
    with pytest.raises(InvalidInput):
        parse(Staging, {"out": [path]})


def test_names_that_the_file_system_cannot_have_refuse_the_job_alone(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused: an undecided job pauses its agent, and would be delivered again without end."""
    rig = make()
    plain = Path.write_bytes

    def refusing(self: Path, data: bytes) -> int:
        if self.name == "a:b":  # as a file system of Windows does
            raise OSError(22, "Invalid argument", str(self))
        return plain(self, data)

    monkeypatch.setattr(Path, "write_bytes", refusing)
    work = with_files(rig.work("true"), files=[small("a:b", "1")])
    rig.executor.submit([work])
    assert rig.wait_for("Refused", work.mark).code == "no-fit"
    assert not list((tmp_path / "work").iterdir())


# -- what a job does in its folder -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo garbage > ../plan.json", "the job changed the list of its files"),
        ("""sed -i 's/"job":"[^"]*"/"job":"00000000-0000-4000-8000-000000000000"/' ../plan.json""", "changed the list"),
        ("mkfifo result", "result is neither a file nor a folder"),
        ("ln -s result result", "the job left no result"),
        ("ln -s ../plan.json result", "result leads out"),
        ("mkdir d; ln -s d result; ln -s /etc/hostname d/x; mkfifo d/y; echo 1 > d/z", None),
        (DEEP, "its folders are nested too deep"),
    ],
    ids=["garbage", "another-job", "pipe", "loop", "plan", "links", "deep"],
)
def test_a_job_ends_whatever_it_leaves(make: Make, tmp_path: Path, script: str, words: str | None) -> None:
    victim = tmp_path / "shared" / "00000000-0000-4000-8000-000000000000" / "in" / "x"
    victim.parent.mkdir(parents=True)
    victim.write_text("another's")
    rig = make(keep=0)
    work = with_files(rig.work(script), place="shared", out=["result"])
    ended = run(rig, work)
    assert victim.exists()
    if words is None:
        assert ended.state == "completed"
        assert os.listdir(left(tmp_path, work) / "result") == ["z"]
    else:
        assert (ended.state, ended.code) == ("failed", "staging")
        assert words in ended.detail
    folder = folder_of(tmp_path, work.mark)
    rig.until(lambda: not (folder / "plan.json").exists(), "end of copying")
    if words:
        os.utime(folder, (0, 0))
        rig.executor.recover([])
    rig.until(lambda: not folder.exists(), "removal of the working directory")


def test_folders_that_nest_deep_do_not_take_the_agent_down(make: Make, tmp_path: Path) -> None:
    """`shutil.rmtree` recurses, and raises RecursionError for them."""
    rig = make(keep=3600)
    work = with_files(rig.work(f"{DEEP}exit 1"), files=[small("x", "1")])
    assert run(rig, work).returncode == 1
    folder = folder_of(tmp_path, work.mark)
    rig.until(lambda: not (folder / "plan.json").exists(), "end of copying")
    os.utime(folder, (0, 0))
    rig.executor.recover([])
    assert not folder.exists()


def test_setuid_stays_with_the_job(make: Make, tmp_path: Path) -> None:
    rig = make()
    work = with_files(rig.work("cp /bin/true result; chmod 6755 result"), place="shared", out=["result"])
    assert run(rig, work).state == "completed"
    assert (left(tmp_path, work) / "result").stat().st_mode & 0o7777 == 0o755


# -- jobs that go elsewhere, and agents that die -----------------------------------------------------------


def test_deep_folders_of_a_job_without_files(tmp_path: Path) -> None:
    """The executor `local` gives it a folder of its own too."""
    context = Context("blue", "owner", tmp_path / "state", Capacity(1, 2, 0), {"keep_s": 0})
    rig = Rig(lambda heard: LocalExecutor(context, heard))
    held = rig.submit(rig.work(DEEP, cwd=None))
    rig.executor.release([held])
    ended = rig.wait_for("Ended", held.mark)
    assert ended.state == "completed", ended
    rig.executor.recover([held])
    rig.executor.recover([])
    assert not list((tmp_path / "state" / "ended").iterdir())
    rig.executor.close()


def test_a_job_that_did_not_start_leaves_what_it_needs_to_its_next_attempt(make: Make, tmp_path: Path) -> None:
    rig = make()
    work = rig.work("cat big")
    work = with_files(work, place="shared", files=[large(tmp_path, work, "big", "12")], out=["big"])
    held = rig.submit(work)
    rig.executor.cancel([held], "elsewhere")
    assert rig.wait_for("Ended", work.mark).state == "cancelled"
    rig.until(lambda: not folder_of(tmp_path, work.mark).exists(), "removal of the working directory")
    assert (tmp_path / "shared" / work.mark.id / "in" / "big").read_text() == "12"
    assert not left(tmp_path, work).exists()
    again = replace(work, mark=replace(work.mark, attempt=2))
    assert run(rig, again).output == "12"


def test_an_agent_that_died_while_it_copied_read_only_files(make: Make, tmp_path: Path) -> None:
    rig = make()
    work = rig.work("cat big")
    work = with_files(work, place="shared", files=[large(tmp_path, work, "big", "12")])
    held = rig.submit(work)
    half = folder_of(tmp_path, work.mark) / "in"
    half.mkdir()
    (half / "big").mkdir(mode=0o500)
    (half / "big" / "x").write_text("")
    rig.executor.release([held])
    assert rig.wait_for("Ended", work.mark).output == "12"


def test_what_came_of_files_outlives_the_agent(make: Make, tmp_path: Path) -> None:
    """It died after it had dealt with them, and before the end of the job was in its journal."""
    rig = make()
    work = with_files(rig.work("true"), place="shared", out=["result"])
    held = rig.submit(work)
    rig.executor.release([held])
    assert rig.wait_for("Ended", work.mark).state == "failed"
    rig.until(lambda: not (folder_of(tmp_path, work.mark) / "plan.json").exists(), "end of copying")
    rig.executor.close()
    rig.reopen()
    found: Found = next(job for job in rig.executor.recover([held]).jobs if job.mark == work.mark)
    assert found.ended is not None
    assert (found.ended.state, found.ended.code) == ("failed", "staging")


def test_a_folder_of_a_job_that_is_being_submitted_stays(make: Make, tmp_path: Path) -> None:
    rig = make(keep=0)
    (tmp_path / "work" / "new").mkdir(parents=True)
    rig.executor.recover([])
    assert (tmp_path / "work" / "new").exists()


# -- places ------------------------------------------------------------------------------------------------


@pytest.fixture
def umask() -> Any:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.parametrize(("mode", "folder", "file"), [(0o755, 0o700, 0o640), (0o2770, 0o2770, 0o660)])
def test_what_lies_at_a_place_is_not_for_everybody(
    tmp_path: Path, umask: None, mode: int, folder: int, file: int
) -> None:
    (tmp_path / "place").mkdir()
    (tmp_path / "place").chmod(mode)
    (tmp_path / "one").write_text("1")
    (tmp_path / "one").chmod(0o640)
    Folder({"path": str(tmp_path / "place")}).put(tmp_path / "one", "job/in/d/one")
    modes = [path.stat().st_mode & 0o7777 for path in sorted((tmp_path / "place").rglob("*"))]
    assert modes == [folder, folder, folder, file]


def test_a_link_at_a_place_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "keys").write_text("mine")
    (tmp_path / "place" / "job").mkdir(parents=True)
    (tmp_path / "place" / "job" / "out").symlink_to(tmp_path / "home")
    (tmp_path / "keys").write_text("theirs")
    place = Folder({"path": str(tmp_path / "place")})
    with pytest.raises(Unavailable, match="behind a link"):
        place.put(tmp_path / "keys", "job/out/keys")
    place.remove("job/out/keys")
    place.remove("job")
    assert (tmp_path / "home" / "keys").read_text() == "mine"


def test_holes_stay_holes(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(200 << 20)
        file.write(b"x")
    Folder({"path": str(tmp_path / "place")}).put(tmp_path / "sparse", "job/sparse")
    found = (tmp_path / "place" / "job" / "sparse").stat()
    assert found.st_size == 200 << 20
    assert found.st_blocks * 512 < 4 << 20


def unprivileged(command: Callable[[], None]) -> int:
    """The exit code of a process that is not root."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if os.getuid() == 0:
                os.setuid(65534)
            command()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_read_only_files_and_folders_come_again_and_go() -> None:
    """As Go's cache of modules has them."""

    def use() -> None:
        base = Path(subprocess.run(["mktemp", "-d"], capture_output=True, text=True, check=True).stdout.strip())
        (base / "source" / "d").mkdir(parents=True)
        (base / "source" / "d" / "one").write_text("1")
        (base / "source" / "d" / "one").chmod(0o400)
        (base / "source" / "d").chmod(0o500)
        place = Folder({"path": str(base / "place")})
        for _ in range(2):
            place.put(base / "source", "job/out/d")
            place.get("job/out", base / "target")
        place.remove("job")
        assert not (base / "place" / "job").exists()
        shutil.move(base / "source", base / "place" / "job")
        place.remove("job")
        assert not (base / "place" / "job").exists()
        shutil.rmtree(base)

    assert unprivileged(use) == 0
