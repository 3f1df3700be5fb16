"""What executors must do whose jobs run commands, and outlive the agent."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rainbow.jobspec.flux.v1 import FluxJob
from rainbow_agents.executors.base import Forecasts, Held, KeepsOutput, Outlook, SubmissionKey, Work
from rainbow_agents.executors.testing.contract import ExecutorContract
from rainbow_agents.executors.testing.rig import PATIENCE, Rig, v1


class RunningExecutorContract(ExecutorContract):
    """For executors whose jobs run commands, and outlive the agent."""

    def test_return_code_of_the_command(self, rig: Rig) -> None:
        ended = rig.run("exit 3")
        assert (ended.state, ended.returncode) == ("failed", 3)

    def test_signal_is_128_and_the_signal(self, rig: Rig) -> None:
        ended = rig.run("kill -KILL $$")
        assert (ended.state, ended.returncode) == ("failed", 137)

    def test_no_such_command(self, rig: Rig) -> None:
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

    def test_there_is_no_input(self, rig: Rig) -> None:
        ended = rig.run("cat; echo end of input")
        assert (ended.state, ended.output) == ("completed", "end of input\n")

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
        # A piece may be shorter than its limit, so that both streams can be told in their order.
        out, err = b"", b""
        while out != b"two\n" or err != b"oops\n":
            piece = executor.output(held, 4 + len(out), len(err), 3)
            assert piece is not None
            assert (piece.stdout_from, piece.stdout_size) == (4 + len(out), 8)
            assert 0 < max(len(piece.stdout), len(piece.stderr)) <= 3
            out, err = out + piece.stdout, err + piece.stderr
        piece = executor.output(held, -2, -1, 1000)
        assert piece is not None
        assert (piece.stdout, piece.stdout_from, piece.stderr) == (b"o\n", 6, b"\n")
        # A handle may have been given out again by a fresh instance: the mark says whose job it is.
        stranger = Held(SubmissionKey(held.mark.id, held.mark.attempt, "somebody-elses-claim"), held.handle)
        strange = executor.output(stranger, 0, 0, 1000)
        assert strange is None or not strange.stdout

    def test_the_queue_is_told_for_forecasts(self, rig: Rig, tmp_path: Path) -> None:
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
        plain = rig.work("true")
        env = {"PATH": "/usr/bin:/bin"}
        first = FluxJob("first", v1(["/bin/sh", "-c", f"echo 1 >> {tmp_path}/ran; exit 2"], environment=env))
        second = FluxJob("second", v1(["/bin/sh", "-c", f"echo 2 >> {tmp_path}/ran"], environment=env), ("first",))
        work = Work(plain.mark, (first, second), plain.demand)
        rig.executor.release([rig.submit(work)])
        ended = rig.wait_for("Ended", work.mark)
        assert (ended.state, ended.returncode) == ("failed", 2)
        assert (tmp_path / "ran").read_text() == "1\n"


__all__ = ["RunningExecutorContract"]
