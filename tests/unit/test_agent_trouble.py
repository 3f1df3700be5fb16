"""One thing wrong ends one thing: a job that cannot be looked up, a folder that cannot be used, a thread that dies."""

from __future__ import annotations

import errno
import queue
import sqlite3
import threading
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from agentrig import Agents
from rainbow.errors import InvalidSettings
from rainbow.jobspec.request import Demand
from rainbow.models.requests import BidAsk, Output
from rainbow_agents.activation import Activation
from rainbow_agents.executors.base import (
    Capacity,
    Context,
    Crashed,
    Held,
    Listener,
    Outlook,
    Recovery,
    SubmissionKey,
    Trouble,
)
from rainbow_agents.executors.dry_run import DryRunExecutor
from rainbow_agents.executors.flux.session.ending import end_of
from rainbow_agents.executors.flux.session.output import read_output, tail_of
from rainbow_agents.executors.testing import Rig as ExecutorRig
from rainbow_agents.executors.testing import v1
from rainbow_agents.intake.admission.policies import Load, Policy
from rainbow_agents.intake.bids import Bidder
from rainbow_agents.intake.validation import Checks
from rainbow_agents.journal import Journal, JournalDown
from rainbow_agents.journal.file import JournalFile
from rainbow_agents.reporting.follower import Follower
from rig import Rig, eventually


class Forgetful(DryRunExecutor):
    """Cannot look up some jobs."""

    unclear: set[SubmissionKey]

    def recover(self, expected: Sequence[Held]) -> Recovery:
        found = super().recover(expected)
        jobs = tuple(job for job in found.jobs if job.mark not in self.unclear)
        trouble = tuple(Trouble(h.mark, "input/output error") for h in expected if h.mark in self.unclear)
        return Recovery(found.incarnation, jobs, trouble)


class TestLookUps:
    @pytest.fixture
    def executor(self, tmp_path: Path) -> Iterator[ExecutorRig]:
        rig = ExecutorRig(lambda listener: Forgetful(Context("blue", "owner", tmp_path, Capacity(1, 8)), listener))
        rig.executor.unclear = set()  # type: ignore[attr-defined]
        yield rig
        rig.executor.close()

    @pytest.fixture
    def journal(self, tmp_path: Path) -> Iterator[Journal]:
        journal = Journal(tmp_path / "journal.sqlite", cluster="blue")
        yield journal
        journal.close()

    def run_job(self, executor: ExecutorRig, journal: Journal) -> Held:
        """A job that ended while this agent did not look."""
        work = executor.work("true")
        work = replace(work, mark=replace(work.mark, id=str(uuid.uuid4())))
        journal.take([(work.mark, "alice", None, 16)])
        executor.executor.submit([work])
        submitted = executor.wait_for("Submitted", work.mark)
        journal.decide([submitted], [])
        journal.release([work.mark], [])
        held = Held(work.mark, submitted.handle)
        executor.executor.release([held])
        executor.wait_for("Ended", work.mark)
        return held

    def follower(self, executor: ExecutorRig, journal: Journal, look_up_for: float = 0.0) -> Follower:
        return Follower(
            journal, executor.executor, queue.SimpleQueue(), wake=lambda: None, every=60.0, look_up_for=look_up_for
        )

    def state(self, journal: Journal, held: Held) -> tuple[str, str | None]:
        row = journal.get(held.mark.id, held.mark.attempt)
        assert row is not None
        return row.state, row.detail

    def test_one_that_cannot_be_looked_up_holds_up_no_other_and_ends_lost(
        self, executor: ExecutorRig, journal: Journal
    ) -> None:
        bad, good = self.run_job(executor, journal), self.run_job(executor, journal)
        executor.executor.unclear = {bad.mark}  # type: ignore[attr-defined]
        follower = self.follower(executor, journal)
        follower.reconcile()
        assert self.state(journal, good)[0] == "completed"
        assert self.state(journal, bad)[0] == "accepted"
        assert follower.unclear == 1
        for _ in range(4):
            follower.reconcile()
        assert self.state(journal, bad)[0] == "lost"
        events = {p.event.id: p.event for p in journal.outbox.due(100)}
        assert (events[bad.mark.id].state, events[bad.mark.id].detail) == ("lost", "input/output error")
        assert follower.unclear == 0

    def test_one_that_can_be_looked_up_again_is_not_lost(self, executor: ExecutorRig, journal: Journal) -> None:
        job = self.run_job(executor, journal)
        executor.executor.unclear = {job.mark}  # type: ignore[attr-defined]
        follower = self.follower(executor, journal)
        for _ in range(4):
            follower.reconcile()
        executor.executor.unclear = set()  # type: ignore[attr-defined]
        follower.reconcile()
        assert self.state(journal, job)[0] == "completed"

    def test_it_is_tried_for_a_while_however_often(self, executor: ExecutorRig, journal: Journal) -> None:
        job = self.run_job(executor, journal)
        executor.executor.unclear = {job.mark}  # type: ignore[attr-defined]
        follower = self.follower(executor, journal, look_up_for=1000.0)
        for _ in range(20):
            follower.reconcile()
        assert self.state(journal, job)[0] == "accepted"


class TestAgent:
    @pytest.fixture
    def rig(self) -> Iterator[Rig]:
        name = uuid.uuid4()
        with Rig(f"memory://{name}", f"memory://{name}") as rig:
            yield rig

    def test_a_dead_thread_of_the_executor_ends_the_agent(self, rig: Rig, tmp_path: Path) -> None:
        listeners: list[Listener] = []

        def executor(context: Context, listener: Listener) -> DryRunExecutor:
            listeners.append(listener)
            return DryRunExecutor(context, listener)

        agents = Agents(rig, tmp_path)
        agent = agents.start(parts={"executor": executor})
        listeners[0](Crashed(RuntimeError("out of order")))
        eventually(lambda: agent.wait(0.0), 60)
        assert agent.stop() == 70
        assert "out of order" in str(agent.failure)

    def test_a_state_folder_that_cannot_be_used_is_one_line(self, rig: Rig, tmp_path: Path) -> None:
        from agentrig import settings
        from rainbow_agents.agent import Agent
        from rainbow_agents.check import examine

        (tmp_path / "state").write_text("a file where the folder should be")
        made = settings(rig, tmp_path, "blue", state_dir=tmp_path / "state")
        with pytest.raises(
            InvalidSettings, match=r"state folder .*state/blue cannot be used: Not a directory: see that"
        ):
            Agent(made)
        wrong = [finding for finding in examine(lambda: made) if not finding.ok]
        assert [f.exit_code for f in wrong] == [2]
        assert "agent.state_dir" in wrong[0].detail

    def test_a_journal_that_cannot_be_made_is_one_line(self, rig: Rig, tmp_path: Path) -> None:
        from agentrig import settings
        from rainbow_agents.agent import Agent

        (tmp_path / "state" / "blue" / "journal.sqlite").mkdir(parents=True)
        with pytest.raises(Exception, match=r"journal\.sqlite cannot be opened") as caught:
            Agent(settings(rig, tmp_path, "blue", state_dir=tmp_path / "state"))
        assert getattr(caught.value, "exit_code", None) == 4

    def test_a_disk_without_locks_is_named_with_the_way_out(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(descriptor: int, kind: int) -> None:
            raise OSError(errno.ENOLCK, "No locks available")

        monkeypatch.setattr("fcntl.flock", refuse)
        activation = Activation(tmp_path, stand_by=False)
        with pytest.raises(InvalidSettings, match=r"NFS often has none.*agent\.state_dir to a folder on a local disk"):
            activation.acquire(threading.Event(), lambda: None)
        activation.release()

    def test_a_journal_that_stays_locked_is_named(self, tmp_path: Path) -> None:
        path = tmp_path / "journal.sqlite"
        JournalFile(path).close()
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("PRAGMA locking_mode=EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        try:
            with pytest.raises(JournalDown, match=r"database is locked: .*a folder on a local disk"):
                JournalFile(path, patience=0.1)
        finally:
            other.close()


class Seen(DryRunExecutor):
    """A cluster whose queue is as `seen` has it."""

    seen: Outlook

    def outlook(self) -> Outlook:
        return self.seen


class TestBids:
    WHOLE = Demand(4, 16, 0)

    def bid(self, tmp_path: Path, seen: Outlook, cores: int = 1, **system: object) -> tuple[bool, str | None, str]:
        executor = Seen(Context("blue", "owner", tmp_path, Capacity(4, 16)), lambda _: None)
        executor.seen = seen
        bidder = Bidder(
            "blue",
            Checks("blue", lambda *_: None, clock=lambda: 0.0),
            executor,
            policy=lambda: Policy(),
            load=lambda: Load(0, 0),
            values=dict,
            why_not=lambda: None,
        )
        job = v1(["true"], cores=cores, system=system)
        [bid] = bidder.bid([BidAsk(id=str(uuid.uuid4()), user="alice", jobspec=job)])
        executor.close()
        return bid.will, bid.code, bid.detail or ""

    def test_what_is_drained_may_come_back(self, tmp_path: Path) -> None:
        drained = Outlook(self.WHOLE, Demand(0, 0, 0), up=Demand(0, 0, 0))
        assert self.bid(tmp_path, drained)[:2] == (False, "busy")
        assert self.bid(tmp_path, drained, cores=17)[:2] == (False, "no-fit")
        assert self.bid(tmp_path, Outlook(self.WHOLE, self.WHOLE, up=self.WHOLE))[0]

    def test_closed_queues_are_busy_for_their_jobs_only(self, tmp_path: Path) -> None:
        seen = Outlook(self.WHOLE, self.WHOLE, closed={"batch": "queue batch is stopped"}, default_queue="batch")
        assert self.bid(tmp_path, seen) == (False, "busy", "queue batch is stopped")
        assert self.bid(tmp_path, seen, queue="batch") == (False, "busy", "queue batch is stopped")
        assert self.bid(tmp_path, seen, queue="debug")[0]

    def test_a_closed_instance_without_named_queues(self, tmp_path: Path) -> None:
        seen = Outlook(self.WHOLE, self.WHOLE, closed={"": "the queue is disabled: maintenance"})
        assert self.bid(tmp_path, seen) == (False, "busy", "the queue is disabled: maintenance")


LOG = "\n".join(
    [
        '{"name":"header","context":{}}',
        '{"name":"data","context":{"stream":"stdout","rank":"0","data":"one\\n"}}',
        '{"name":"data","context":{"stream":"stderr","rank":"0","data":"oops\\n"}}',
        '{"name":"data","context":{"stream":"stdout","rank":"0","data":"/wA=","encoding":"base64"}}',
        '{"name":"log","context":{"rank":0,"level":4,"message":"stdout: 20 of 100 bytes truncated"}}',
        '{"name":"log","context":{"rank":0,"level":6,"message":"of no interest"}}',
        '{"name":"redirect","context":{"stream":"stderr","rank":"0","path":"err.txt"}}',
        '{"name":"data","context":{"stream":"stdout","rank":"0","eof":true}}',
    ]
)


class TestFluxOutput:
    def test_streams_apart_and_in_order_with_what_is_missing(self) -> None:
        piece = read_output(LOG).piece((0, 0), 1000)
        assert piece["order"] == [[0, 4], [1, 5], [0, 2]]
        assert piece["notes"] == [
            "flux-shell[0]: stdout: 20 of 100 bytes truncated",
            "stderr is in the file err.txt on the cluster",
        ]
        assert (piece["stdout"]["size"], piece["stderr"]["size"]) == (6, 5)

    def test_a_piece_ends_where_one_stream_is_full_so_that_the_order_is_kept(self) -> None:
        output = read_output(LOG)
        first = output.piece((0, 0), 2)
        assert first["order"] == [[0, 2]]
        assert output.piece((2, 0), 1000)["order"] == [[0, 2], [1, 5], [0, 2]]
        assert output.piece((-2, -1), 1000)["order"] == [[1, 1], [0, 2]]

    def test_the_tail_says_what_was_cut(self) -> None:
        assert (tail_of(LOG, 4096) or "").endswith(
            "flux-shell[0]: stdout: 20 of 100 bytes truncated\nstderr is in the file err.txt on the cluster\n"
        )

    def test_an_end_that_is_not_all_says_so_and_begins_with_a_line(self) -> None:
        lines = "".join(f"line {number}\n" for number in range(1000))
        end = end_of(lines.encode(), 4096) or ""
        assert end.startswith("[what was written before this is left out]\nline ")
        assert end.endswith("line 999\n")
        assert 4000 < len(end) <= 4096
        assert (end_of(b"x" * 5000, 4096) or "").startswith("[what was written before this is left out]\nxxx")
        assert end_of(b"x" * 4096, 4096) == "x" * 4096
        assert end_of(b"", 4096) is None

    def test_a_client_reads_both_in_their_order(self) -> None:
        piece = Output(id="a", stdout="one\ntwo\n", stderr="oops\n", order=[(0, 4), (1, 5)])
        assert list(piece.in_order()) == [(0, b"one\n"), (1, b"oops\n"), (0, b"two\n")]
        assert list(Output(id="a", stdout="x", stderr="y").in_order()) == [(0, b"x"), (1, b"y")]
        assert list(Output(id="a", stdout="x", order=[(7, 3), (0, -1), (0, 9)]).in_order()) == [(0, b"x")]
