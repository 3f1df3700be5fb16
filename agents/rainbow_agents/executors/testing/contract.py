"""What every executor must do."""

from __future__ import annotations

import uuid
from pathlib import Path

from rainbow.jobspec.request import Demand
from rainbow_agents.executors.base import Held, SubmissionKey
from rainbow_agents.executors.testing.rig import Rig


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
        work = rig.work("sleep 0.2")
        held = rig.submit(work)
        stranger = Held(SubmissionKey(str(uuid.uuid4()), 1, "0" * 16), held.handle)
        rig.executor.cancel([stranger], "not ours")
        rig.executor.release([stranger])
        found = rig.found(stranger)
        assert found is None
        assert rig.count("Ended", work.mark) == 0
        rig.executor.release([held])
        assert rig.wait_for("Ended", work.mark).state == "completed"


__all__ = ["ExecutorContract"]
