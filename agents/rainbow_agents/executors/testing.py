"""What every executor of the agent must do, as tests: subclass, give the fixture `rig`, and pytest runs them.

    class TestMine(ExecutorContract):
        @pytest.fixture
        def rig(self, tmp_path):
            yield Rig(lambda listener: MyExecutor(context, listener))

Every job of `Rig.work` runs `sh -c SCRIPT`. An executor that runs nothing says so with `runs = False`.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rainbow.jobspec.request import Demand
from rainbow.jobspec.to_v1 import FluxJob

if TYPE_CHECKING:  # written against the agent's contract, without importing the agent
    from rainbow_agents.executors.base import Executor, Found, Happening, Held, Listener, Mark, Work

T = TypeVar("T")

#: Seconds to wait for something that happens: against hangs only.
PATIENCE = 60.0


def v1(
    command: Sequence[str],
    *,
    cores: int = 1,
    nodes: int = 0,
    tasks: int = 1,
    duration: float = 0.0,
    cwd: str | None = "/tmp",  # noqa: S108 - a folder that exists everywhere
    environment: dict[str, str] | None = None,
    system: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A V1 jobspec: `tasks` slots of `cores` cores, on `nodes` nodes if given."""
    slot: dict[str, Any] = {
        "type": "slot",
        "label": "task",
        "count": tasks if not nodes else max(1, tasks // nodes),
        "with": [{"type": "core", "count": cores}],
    }
    resources = [{"type": "node", "count": nodes, "with": [slot]}] if nodes else [slot]
    attributes: dict[str, Any] = {"duration": duration, **(system or {})}
    if cwd is not None:
        attributes["cwd"] = cwd
    if environment is not None:
        attributes["environment"] = environment
    return {
        "version": 1,
        "resources": resources,
        "tasks": [{"command": list(command), "slot": "task", "count": {"per_slot": 1}}],
        "attributes": {"system": attributes},
    }


class Rig:
    """An executor under test, and everything it told."""

    def __init__(self, make: Callable[[Listener], Executor], environment: dict[str, str] | None = None) -> None:
        self._make = make
        self._environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", **(environment or {})}
        self._changed = threading.Condition()
        self.told: list[Happening] = []
        self.executor = self._open()

    def _open(self) -> Executor:
        executor = self._make(self._listen)
        self.wait_for("Up")
        return executor

    def _listen(self, happening: Happening) -> None:
        with self._changed:
            self.told.append(happening)
            self._changed.notify_all()

    def reopen(self) -> None:
        """As if the agent had died and another been started: the old one is let go of, what it told is forgotten."""
        self.executor.close()
        with self._changed:
            self.told.clear()
        self.executor = self._open()

    def until(self, look: Callable[[], T | None], what: str, patience: float = PATIENCE) -> T:
        """What `look` gives, once it is not None (or empty)."""
        end = time.monotonic() + patience
        with self._changed:
            while True:
                found = look()
                if found:
                    return found
                left = end - time.monotonic()
                if left <= 0:
                    raise AssertionError(f"{what} did not happen within {patience:g} s; told: {self.told[-10:]}")
                self._changed.wait(min(left, 0.1))

    def wait_for(self, kind: str, mark: Mark | None = None) -> Any:
        """The first happening of that kind (of that job)."""
        return self.until(
            lambda: next(
                (
                    h
                    for h in self.told
                    if type(h).__name__ == kind and (mark is None or getattr(h, "mark", None) == mark)
                ),
                None,
            ),
            f"{kind} of {mark}",
        )

    def count(self, kind: str, mark: Mark) -> int:
        with self._changed:
            return sum(1 for h in self.told if type(h).__name__ == kind and getattr(h, "mark", None) == mark)

    def work(self, script: str, *, demand: Demand | None = None, **options: Any) -> Work:
        from rainbow_agents.executors.base import Mark, Work

        mark = Mark(str(uuid.uuid4()), 1, uuid.uuid4().hex[:16])
        options.setdefault("environment", self._environment)
        document = v1(["/bin/sh", "-c", script], **options)
        wanted = demand or Demand(options.get("nodes", 0), options.get("cores", 1) * options.get("tasks", 1), 0)
        return Work(mark, (FluxJob("job", document),), wanted, name="contract", user="tester")

    def submit(self, work: Work) -> Held:
        """Submit, and give what it became (held)."""
        from rainbow_agents.executors.base import Held

        self.executor.submit([work])
        told = self.wait_for("Submitted", work.mark)
        return Held(work.mark, told.handle, work.priority)

    def run(self, script: str, **options: Any) -> Any:
        """Run to the end: the Ended."""
        work = self.work(script, **options)
        held = self.submit(work)
        self.executor.release([held])
        return self.wait_for("Ended", work.mark)

    def found(self, held: Held) -> Found | None:
        recovery = self.executor.recover([held])
        return next((f for f in recovery.jobs if f.mark == held.mark), None)


class ExecutorContract:
    """Inherit, and give the fixture `rig`."""

    #: Whether commands really run.
    runs = True

    def test_a_job_is_held_until_released(self, rig: Rig, tmp_path: Path) -> None:
        work = rig.work(f"echo x >> {tmp_path}/ran")
        held = rig.submit(work)
        found = rig.until(lambda: rig.found(held), "the held job being found")
        assert found.phase == "held"
        assert rig.count("Started", work.mark) == 0
        rig.executor.release([held])
        ended = rig.wait_for("Ended", work.mark)
        assert (ended.state, ended.returncode) == ("completed", 0)
        assert rig.count("Started", work.mark) == 1
        if self.runs:
            assert (tmp_path / "ran").read_text() == "x\n"

    def test_releasing_twice_starts_once(self, rig: Rig, tmp_path: Path) -> None:
        work = rig.work(f"echo x >> {tmp_path}/ran")
        held = rig.submit(work)
        rig.executor.release([held, held])
        rig.executor.release([held])
        rig.wait_for("Ended", work.mark)
        rig.executor.release([held])
        rig.executor.recover([held])
        if self.runs:
            assert (tmp_path / "ran").read_text() == "x\n"
        assert rig.count("Ended", work.mark) == 1

    def test_cancelling_a_held_job_ends_it_unstarted(self, rig: Rig, tmp_path: Path) -> None:
        work = rig.work(f"echo x >> {tmp_path}/ran")
        held = rig.submit(work)
        rig.executor.cancel([held], "no longer wanted")
        ended = rig.wait_for("Ended", work.mark)
        assert ended.state == "cancelled"
        rig.executor.release([held])
        rig.executor.cancel([held], "again")
        assert not (tmp_path / "ran").exists()
        found = rig.found(held)
        assert found is None or found.phase == "ended"

    def test_many_at_a_time_each_answered(self, rig: Rig) -> None:
        works = [rig.work("true") for _ in range(50)]
        rig.executor.submit(works)
        held = [rig.wait_for("Submitted", w.mark) for w in works]
        assert len({h.handle for h in held}) == 50
        from rainbow_agents.executors.base import Held

        rig.executor.release([Held(h.mark, h.handle) for h in held])
        for work in works:
            assert rig.wait_for("Ended", work.mark).state == "completed"

    def test_what_can_never_fit_is_refused(self, rig: Rig) -> None:
        work = rig.work("true", cores=100_000, demand=Demand(0, 100_000, 0))
        rig.executor.submit([work])
        refused = rig.wait_for("Refused", work.mark)
        assert refused.code == "no-fit"
        assert rig.count("Submitted", work.mark) == 0

    def test_usage_has_numbers(self, rig: Rig) -> None:
        usage = rig.executor.usage()
        assert usage.nodes_free is not None
        assert usage.nodes_free >= 1
        assert usage.cores_free is not None
        assert usage.cores_free >= 1

    def test_ended_jobs_are_found_by_handle(self, rig: Rig) -> None:
        work = rig.work("true")
        held = rig.submit(work)
        rig.executor.release([held])
        rig.wait_for("Ended", work.mark)
        found = rig.until(lambda: rig.found(held), "the ended job being found")
        assert found.phase == "ended"
        assert found.ended is not None
        assert found.ended.state == "completed"

    def test_a_strangers_job_of_the_same_handle_is_left_alone(self, rig: Rig) -> None:
        from rainbow_agents.executors.base import Held, Mark

        work = rig.work("sleep 0.2")
        held = rig.submit(work)
        stranger = Held(Mark(str(uuid.uuid4()), 1, "0" * 16), held.handle)
        rig.executor.cancel([stranger], "not ours")
        rig.executor.release([stranger])
        found = rig.found(stranger)
        assert found is None
        assert rig.count("Ended", work.mark) == 0
        rig.executor.release([held])
        assert rig.wait_for("Ended", work.mark).state == "completed"


class RunningExecutorContract(ExecutorContract):
    """For executors whose jobs run commands, and outlive the agent."""

    def test_return_code_of_the_command(self, rig: Rig) -> None:
        ended = rig.run("exit 3")
        assert (ended.state, ended.returncode) == ("failed", 3)

    def test_signal_is_128_and_the_signal(self, rig: Rig) -> None:
        ended = rig.run("kill -KILL $$")
        assert (ended.state, ended.returncode) == ("failed", 137)

    def test_no_such_command(self, rig: Rig) -> None:
        from rainbow_agents.executors.base import Work

        plain = rig.work("true")
        document = v1(["no-such-command-anywhere"], environment={"PATH": "/usr/bin:/bin"})
        work = Work(plain.mark, (FluxJob("job", document),), plain.demand)
        rig.executor.release([rig.submit(work)])
        ended = rig.wait_for("Ended", work.mark)
        assert (ended.state, ended.returncode) == ("failed", 127)

    def test_output_comes_with_the_end(self, rig: Rig) -> None:
        ended = rig.run("echo to-out; echo to-err >&2")
        assert "to-out" in (ended.output or "")
        assert "to-err" in (ended.output or "")

    def test_a_flood_of_output_is_cut_to_its_tail(self, rig: Rig) -> None:
        ended = rig.run(
            "i=0; while [ $i -lt 3000 ]; do echo line-$i-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; i=$((i+1)); done"
        )
        assert ended.state == "completed"
        assert ended.output is not None
        assert len(ended.output.encode()) <= 4096

    def test_time_limit_is_kept(self, rig: Rig) -> None:
        began = time.monotonic()
        ended = rig.run("sleep 300", duration=1.0)
        assert ended.state == "failed"
        assert ended.code == "timeout"
        assert ended.returncode == 142
        assert time.monotonic() - began < 60

    def test_cancelling_a_running_job(self, rig: Rig) -> None:
        work = rig.work("sleep 300")
        held = rig.submit(work)
        rig.executor.release([held])
        rig.wait_for("Started", work.mark)
        rig.executor.cancel([held], "no longer wanted")
        ended = rig.wait_for("Ended", work.mark)
        assert ended.state == "cancelled"
        assert ended.returncode in (143, -15)  # what ran the command may have got the signal itself

    def test_missing_folder_is_refused(self, rig: Rig, tmp_path: Path) -> None:
        work = rig.work("true", cwd=str(tmp_path / "not-there"))
        rig.executor.submit([work])
        refused = rig.wait_for("Refused", work.mark)
        assert refused.code == "no-fit"
        assert "not-there" in refused.detail

    def test_runs_in_its_folder(self, rig: Rig, tmp_path: Path) -> None:
        ended = rig.run("pwd", cwd=str(tmp_path))
        assert str(tmp_path) in (ended.output or "")

    def test_the_environment_of_the_agent_does_not_leak(self, rig: Rig, monkeypatch: Any) -> None:
        monkeypatch.setenv("RAINBOW_TOKEN", "very-secret")
        ended = rig.run("env; echo HERE=$GIVEN", environment={"PATH": "/usr/bin:/bin", "GIVEN": "yes"})
        assert "HERE=yes" in (ended.output or "")
        assert "very-secret" not in (ended.output or "")

    def test_a_running_job_is_found_again_and_followed(self, rig: Rig, tmp_path: Path) -> None:
        work = rig.work(f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; exit 5")
        held = rig.submit(work)
        rig.executor.release([held])
        rig.wait_for("Started", work.mark)
        rig.reopen()
        found = rig.until(lambda: rig.found(held), "the running job being found")
        assert found.phase == "running"
        (tmp_path / "go").touch()
        ended = rig.wait_for("Ended", work.mark)
        assert (ended.state, ended.returncode) == ("failed", 5)

    def test_a_job_that_ended_meanwhile_is_told_by_recover(self, rig: Rig, tmp_path: Path) -> None:
        work = rig.work(f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; echo done > {tmp_path}/done; exit 4")
        held = rig.submit(work)
        rig.executor.release([held])
        rig.wait_for("Started", work.mark)
        rig.executor.close()
        (tmp_path / "go").touch()
        end = time.monotonic() + PATIENCE
        while not (tmp_path / "done").exists() and time.monotonic() < end:
            time.sleep(0.02)
        rig.reopen()

        def ended() -> Any:
            found = rig.found(held)
            return found if found is not None and found.phase == "ended" and found.ended is not None else None

        found = rig.until(ended, "the end being found")
        assert (found.ended.state, found.ended.returncode) == ("failed", 4)

    def test_held_jobs_survive_and_carry_their_mark(self, rig: Rig) -> None:
        work = rig.work("true")
        held = rig.submit(work)
        rig.reopen()
        found = rig.until(lambda: rig.found(held), "the held job being found")
        assert found.phase == "held"
        assert found.mark == work.mark
        rig.executor.release([held])
        assert rig.wait_for("Ended", work.mark).state == "completed"

    def test_output_is_read_while_it_runs_and_after(self, rig: Rig, tmp_path: Path) -> None:
        from rainbow_agents.executors.base import Held, KeepsOutput, Mark

        executor = rig.executor
        assert isinstance(executor, KeepsOutput)
        script = f"echo one; echo oops >&2; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; echo two"
        work = rig.work(script)
        held = rig.submit(work)
        nothing = executor.output(held, 0, 0, 1000)
        assert nothing is not None  # it has not started, which is no error
        assert nothing.stdout == b""
        rig.executor.release([held])

        def written() -> Any:
            piece = executor.output(held, 0, 0, 1000)
            return piece if piece is not None and piece.stdout and piece.stderr else None

        piece = rig.until(written, "its output being there while it runs")
        assert (piece.stdout, piece.stderr) == (b"one\n", b"oops\n")
        (tmp_path / "go").touch()
        rig.wait_for("Ended", work.mark)
        piece = executor.output(held, piece.stdout_from + len(piece.stdout), 0, 3)
        assert piece is not None
        assert (piece.stdout, piece.stdout_from, piece.stdout_size, piece.stderr) == (b"two", 4, 8, b"oop")
        piece = executor.output(held, -2, -1, 1000)
        assert piece is not None
        assert (piece.stdout, piece.stdout_from, piece.stderr) == (b"o\n", 6, b"\n")
        # A handle may have been given out again by a fresh instance: the mark says whose job it is.
        stranger = Held(Mark(held.mark.id, held.mark.attempt, "somebody-elses-claim"), held.handle)
        strange = executor.output(stranger, 0, 0, 1000)
        assert strange is None or not strange.stdout

    def test_the_queue_is_told_for_forecasts(self, rig: Rig, tmp_path: Path) -> None:
        from rainbow_agents.executors.base import Forecasts, Outlook

        executor = rig.executor
        assert isinstance(executor, Forecasts)

        def look(busy: int, waiting: int) -> Callable[[], Outlook | None]:
            def now() -> Outlook | None:
                seen = executor.outlook()
                return seen if (len(seen.busy), len(seen.waiting)) == (busy, waiting) else None

            return now

        empty = rig.until(look(0, 0), "the queue being empty")
        assert empty.free == empty.total
        whole = empty.total.cores
        script = f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"
        works = [rig.work(script, cores=1, tasks=whole, duration=600.0) for _ in range(2)]
        if empty.total.nodes > 1 or whole > 64:
            works = [rig.work(script, cores=whole, duration=600.0) for _ in range(2)]
        begun = time.time()
        rig.executor.release([rig.submit(w) for w in works])
        seen = rig.until(look(1, 1), "one job running, one waiting")
        assert seen.free.cores == 0
        assert seen.busy[0].demand.cores == whole
        assert seen.busy[0].ends_at is not None
        assert begun + 590 < seen.busy[0].ends_at < time.time() + 610
        assert (seen.waiting[0].demand.cores, seen.waiting[0].duration) == (whole, 600.0)
        (tmp_path / "go").touch()
        for work in works:
            rig.wait_for("Ended", work.mark)

    def test_tasks_one_after_another_stop_at_the_first_failure(self, rig: Rig, tmp_path: Path) -> None:
        from rainbow_agents.executors.base import Work

        plain = rig.work("true")
        env = {"PATH": "/usr/bin:/bin"}
        first = FluxJob("first", v1(["/bin/sh", "-c", f"echo 1 >> {tmp_path}/ran; exit 2"], environment=env))
        second = FluxJob("second", v1(["/bin/sh", "-c", f"echo 2 >> {tmp_path}/ran"], environment=env), ("first",))
        work = Work(plain.mark, (first, second), plain.demand)
        rig.executor.release([rig.submit(work)])
        ended = rig.wait_for("Ended", work.mark)
        assert (ended.state, ended.returncode) == ("failed", 2)
        assert (tmp_path / "ran").read_text() == "1\n"


__all__ = ["PATIENCE", "ExecutorContract", "Rig", "RunningExecutorContract", "v1"]
