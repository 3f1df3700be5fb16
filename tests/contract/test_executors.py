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
        one.until(lambda: [t for t in (*one.told, *two.told) if isinstance(t, Ended)], "the end of the job", 20.0)
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

    def test_containers_and_batch_scripts_are_refused(self, rig: Rig) -> None:
        work = rig.work("true", system={"files": {"script": {"data": "x"}}})
        rig.executor.submit([work])
        assert "plain commands" in rig.wait_for("Refused", work.mark).detail

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
