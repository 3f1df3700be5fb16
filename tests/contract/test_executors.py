"""The executors that need nothing installed: dry-run and local, by the contract and by what is theirs alone."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rainbow.errors import InvalidSettings
from rainbow.jobspec.request import Demand
from rainbow.scripts import read_script
from rainbow_agents.executors.base import Capacity, Context, Ended, Held
from rainbow_agents.executors.dry_run import DryRunExecutor
from rainbow_agents.executors.local import LocalExecutor
from rainbow_agents.executors.testing import ExecutorContract, Rig, RunningExecutorContract

CAPACITY = Capacity(nodes=4, cores=16, gpus=4)


def context(folder: Path, **options: object) -> Context:
    return Context("blue", "owner", folder, CAPACITY, options)


class TestDryRun(ExecutorContract):
    runs = False

    @pytest.fixture
    def rig(self, tmp_path: Path) -> Iterator[Rig]:
        rig = Rig(lambda listener: DryRunExecutor(context(tmp_path / "state"), listener))
        yield rig
        rig.executor.close()


class TestDryRunTakingTime(ExecutorContract):
    runs = False

    @pytest.fixture
    def rig(self, tmp_path: Path) -> Iterator[Rig]:
        rig = Rig(lambda listener: DryRunExecutor(context(tmp_path / "state", run_s=0.05), listener))
        yield rig
        rig.executor.close()

    def test_jobs_queue_for_the_cores_there_are(self, rig: Rig) -> None:
        works = [rig.work("true", cores=10, demand=Demand(0, 10, 0)) for _ in range(3)]
        rig.executor.release([rig.submit(w) for w in works])
        usage = rig.executor.usage()
        assert (usage.jobs_running, usage.jobs_pending) == (1, 2)
        assert usage.cores_free == 6
        ends = [rig.wait_for("Ended", w.mark).at for w in works]
        assert ends == sorted(ends)


class TestLocal(RunningExecutorContract):
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        return tmp_path / "state"

    @pytest.fixture
    def make(self, folder: Path) -> Iterator[Callable[[], Rig]]:
        rigs: list[Rig] = []

        def make() -> Rig:
            rigs.append(Rig(lambda listener: LocalExecutor(context(folder, kill_after=0.5), listener)))
            return rigs[-1]

        yield make
        for rig in rigs:
            jobs = [Held(f.mark, f.handle) for f in rig.executor.recover([]).jobs]
            rig.executor.cancel(jobs, "the test is over")
            for job in jobs:
                rig.wait_for("Ended", job.mark)
            rig.executor.close()

    @pytest.fixture
    def rig(self, make: Callable[[], Rig]) -> Rig:
        return make()

    def test_two_executors_on_one_folder_start_a_job_once(self, make: Callable[[], Rig], tmp_path: Path) -> None:
        one, two = make(), make()
        work = one.work(f"echo x >> {tmp_path}/ran; sleep 0.2")
        held = one.submit(work)
        one.executor.release([held])
        two.executor.release([held])
        # The end is told by the one that saw it first: an agent's journal, which they share, takes it from either.
        one.until(lambda: [t for t in (*one.told, *two.told) if isinstance(t, Ended)], "the end of the job", 60)
        two.executor.recover([held])
        assert (tmp_path / "ran").read_text() == "x\n"

    def test_a_cancel_by_another_executor_holds(self, make: Callable[[], Rig], tmp_path: Path) -> None:
        one, two = make(), make()
        work = one.work(f"echo x >> {tmp_path}/ran")
        held = one.submit(work)
        two.executor.cancel([held], "gone")
        two.wait_for("Ended", work.mark)
        one.executor.release([held])
        assert one.found(held) is not None
        assert not (tmp_path / "ran").exists()

    def test_a_killed_runner_is_noticed_and_its_tasks_ended(self, rig: Rig, folder: Path, tmp_path: Path) -> None:
        work = rig.work(f"echo $$ > {tmp_path}/pid; exec sleep 300")
        held = rig.submit(work)
        rig.executor.release([held])
        rig.until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip(), "the task's pid")
        runner = int((folder / "active" / held.handle / "runner.json").read_text())
        rig.until(lambda: (folder / "active" / held.handle / "tasks.json").exists(), "the tasks being noted")
        os.kill(runner, signal.SIGKILL)
        ended = rig.wait_for("Ended", work.mark)
        assert (ended.state, ended.returncode) == ("failed", -9)
        task = int((tmp_path / "pid").read_text())
        end = time.monotonic() + 10
        while _alive(task) and time.monotonic() < end:
            time.sleep(0.02)
        assert not _alive(task)

    def test_jobs_start_in_order_of_priority_as_cores_get_free(self, rig: Rig, tmp_path: Path) -> None:
        """S28: on the cluster, too, urgent jobs that came later start earlier."""
        first = rig.work(f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done", cores=16, demand=Demand(0, 16, 0))
        rig.executor.release([rig.submit(first)])
        rig.wait_for("Started", first.mark)
        names = ["low", "high", "mid"]
        works = {n: rig.work(f"echo {n} >> {tmp_path}/order", cores=16, demand=Demand(0, 16, 0)) for n in names}
        for name, urgency in (("low", 1), ("mid", 16), ("high", 31)):
            held = rig.submit(works[name])
            rig.executor.release([Held(held.mark, held.handle, urgency)])
        assert rig.executor.usage().jobs_pending == 3
        (tmp_path / "go").touch()
        for work in works.values():
            rig.wait_for("Ended", work.mark)
        assert (tmp_path / "order").read_text().split() == ["high", "mid", "low"]

    def test_several_tasks_with_their_rank(self, rig: Rig) -> None:
        ended = rig.run("echo rank-$FLUX_TASK_RANK of $FLUX_JOB_SIZE", tasks=3)
        assert sorted((ended.output or "").splitlines()) == [f"rank-{n} of 3" for n in range(3)]

    def test_files_of_a_job_are_in_its_folder(self, rig: Rig) -> None:
        files = {"a.txt": {"data": "text"}, "b.bin": {"data": "AAE=", "encoding": "base64", "mode": 0o100600}}
        ended = rig.run("cat {{tmpdir}}/a.txt; od -An -tx1 {{tmpdir}}/b.bin", system={"files": files})
        assert (ended.output or "").split() == ["text", "00", "01"]

    def test_only_what_flux_fills_in_is_special_between_braces(self, rig: Rig) -> None:
        assert rig.run("echo '{{.Names}} {{ x }} {{name}}'").output == "{{.Names}} {{ x }} contract\n"
        work = rig.work("echo {{taskid}}")
        rig.executor.submit([work])
        assert "only Flux fills in" in rig.wait_for("Refused", work.mark).detail

    def test_output_goes_to_the_files_that_a_job_names(self, rig: Rig, tmp_path: Path) -> None:
        output = {"stdout": {"type": "file", "path": f"{tmp_path}/{{{{name}}}}.out"}}
        ended = rig.run("echo to-out; echo to-err >&2", system={"shell": {"options": {"output": output}}})
        (written,) = tmp_path.glob("*.out")
        assert (ended.output, sorted(written.read_text().split())) == (None, ["to-err", "to-out"])

    @pytest.mark.parametrize(
        ("script", "words"),
        [("flux run -n2 hostname", "calls flux"), ("id=$(flux submit true)", "calls flux"), (None, "instance of Flux")],
    )
    def test_what_needs_flux_is_refused(self, rig: Rig, script: str | None, words: str) -> None:
        files = {} if script is None else {"files": {"script": {"data": f"#!/bin/sh\n{script}\n"}}}
        work = rig.work("true", system=files)
        work.units[0].document["tasks"][0]["command"] = ["flux", "broker", "{{tmpdir}}/script"]
        rig.executor.submit([work])
        assert words in rig.wait_for("Refused", work.mark).detail

    @pytest.mark.parametrize("name", ["../up", "a/b", ".."])
    def test_files_that_leave_the_folder_are_refused(self, rig: Rig, name: str) -> None:
        work = rig.work("true", system={"files": {name: {"data": "x"}}})
        rig.executor.submit([work])
        assert "not one name" in rig.wait_for("Refused", work.mark).detail

    def test_a_script_for_slurm_runs_with_its_steps(self, rig: Rig) -> None:
        text = "#!/bin/bash\n#SBATCH -n 2\nsrun -l sh -c 'echo rank $SLURM_PROCID of $SLURM_NTASKS: $1' _ $1\nexit 3\n"
        work = rig.work("true")
        work.units[0].document.update(read_script(text, "job.sh", ["arg"]).jobspec)
        held = rig.submit(work)
        rig.executor.release([held])
        ended = rig.wait_for("Ended", work.mark)
        assert sorted((ended.output or "").splitlines()) == ["rank 0 of 2: arg", "rank 1 of 2: arg"]
        assert ended.returncode == 3

    def test_a_folder_that_is_being_made_is_no_job(self, rig: Rig, folder: Path) -> None:
        """Also one of an earlier release, which made them beside the jobs: a sweep must not take it for a held job."""
        for half in (folder / "active" / f".{rig.work('true').mark.id}.1.abc", folder / "new" / "an-id.1.abc"):
            half.mkdir()
        assert rig.executor.recover([]).jobs == ()

    def test_folders_of_ended_jobs_are_kept_for_a_while_only(self, folder: Path) -> None:
        rig = Rig(lambda listener: LocalExecutor(context(folder, keep_s=0.0), listener))
        rig.run("true")
        rig.until(lambda: any((folder / "ended").iterdir()), "the folder being moved")
        rig.executor.recover([])
        assert list((folder / "ended").iterdir()) == []
        rig.executor.close()

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"colour": 1}, "no option 'colour'"),
            ({"kill_after": "soon"}, "must be a float"),
            ({"max_tasks": True}, "must be a int"),
            ({"keep_s": -1.0}, "not be negative"),
        ],
    )
    def test_wrong_options_are_named(self, tmp_path: Path, options: dict[str, object], words: str) -> None:
        with pytest.raises(InvalidSettings, match=words):
            LocalExecutor(context(tmp_path, **options), lambda _: None)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state != "Z"
