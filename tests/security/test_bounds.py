"""What is stored, shown and worked out is bounded: values, text of strangers, time."""

from __future__ import annotations

import io
import logging
import math
import random
import time
from typing import Any

import pytest

from rainbow.cli.render import output
from rainbow.errors import InvalidInput, RainbowError
from rainbow.jobspec.constraints import MAX_PIECES, read_constraint
from rainbow.jobspec.request import Demand
from rainbow.logs import TextFormatter, printable
from rainbow.models.cluster import StateReport
from rainbow.models.job import MAX_DETAIL, MAX_TAIL, JobEvent
from rainbow.models.wire import parse
from rainbow_workers.registry.operations import access
from rainbow_workers.selection.base import JobView, Load
from rainbow_workers.selection.constraint import BUDGET_S, Constraint
from rig import Rig

ESCAPES = "\x1b[2J\x1b]0;owned\x07\x9b31m\r\u202e\x00"


@pytest.mark.parametrize(
    "values",
    [
        {"x": math.nan},
        {"x": math.inf},
        {"x": 10**30},
        {"x": "y" * 2000},
        {"x" * 200: 1},
        {f"x{n}": n for n in range(300)},
        {"x": []},
        {"x": None},
    ],
)
def test_a_heartbeat_says_a_bounded_number_of_finite_things(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        parse(StateReport, {"cluster": "blue", "values": values})


def test_what_an_event_carries_is_cut() -> None:
    event = parse(
        JobEvent,
        {
            "id": "x",
            "state": "failed",
            "at": 1.0,
            "output": "a" * 900_000 + "end",
            "detail": "d" * 99_999,
        },
    )
    assert event.output is not None
    assert (len(event.output), event.output[-3:]) == (MAX_TAIL, "end")
    assert event.detail == "d" * MAX_DETAIL


@pytest.mark.parametrize("field", ["flux_id", "code", "user", "name", "cluster"])
def test_other_texts_of_an_event_are_bounded(field: str) -> None:
    with pytest.raises(InvalidInput):
        parse(JobEvent, {"id": "x", "state": "failed", "at": 1.0, field: "x" * 5000})


# -- text of others -------------------------------------------------------------------------------------------------


def test_no_control_character_reaches_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, show in (("stdout", output.line), ("stderr", output.note)):
        said = io.StringIO()
        monkeypatch.setattr(f"sys.{stream}", said)
        show(f"why: {ESCAPES}\tstill\nhere")
        assert said.getvalue() == f"why: {printable(ESCAPES)}\tstill\nhere\n"
        assert not any(c in said.getvalue() for c in ESCAPES if not c.isprintable())


def test_no_text_begins_a_line_of_its_own_in_a_log() -> None:
    record = logging.LogRecord("rainbow", logging.INFO, "f", 1, "said %s", (f"x\n2026-01-01 forged {ESCAPES}",), None)
    record.detail = "y\nforged"
    line = TextFormatter().format(record)
    assert "\n" not in line
    assert not any(c in line for c in ESCAPES if not c.isprintable())


# -- time -------------------------------------------------------------------------------------------------------------


def test_aliases_in_priorities_are_counted() -> None:
    text = "- priority: 1\n  steps: &s [" + "{filter: '1'}," * 90 + "{filter: '1'}]\n"
    text += "- &p {priority: 2, steps: *s}\n" + "- *p\n" * 9000
    began = time.monotonic()
    with pytest.raises(InvalidInput):
        Constraint({"priorities": text})
    assert time.monotonic() - began < 10


def test_a_decision_by_priorities_takes_so_long_and_no_longer() -> None:
    """Other jobs wait for it: when its time is up, the job is told why."""
    steps = [{"calc": f"x{n}=" + "+".join(f"abs(nodes_free-{m})" for m in range(8))} for n in range(100)]
    made = Constraint({"priorities": [{"priority": n, "steps": [*steps[:99], {"filter": "0"}]} for n in range(50)]})
    names = [f"c{n}" for n in range(400)]
    began = time.monotonic()
    choice = made.choose(names, _fleet(), _job(), random.Random(1))
    assert time.monotonic() - began < BUDGET_S + 15
    assert choice.cluster is None
    assert "take more than" in next(iter(choice.dropped.values()))


def _fleet() -> Any:
    class Fleet:
        def values(self, name: str) -> dict[str, Any]:
            return {}

        def load(self, name: str) -> Load:
            return Load(Demand(4, 16, 0), Demand(3, 12, 0))

    return Fleet()


def _job() -> Any:
    return JobView("1", "alice", None, 16, Demand(1, 1, 0), 60.0, {}, {})


def test_a_constraint_names_a_bounded_number_of_hosts() -> None:
    with pytest.raises(RainbowError, match="separate names"):
        read_constraint({"hostlist": [",".join(f"h{2 * n}" for n in range(MAX_PIECES + 1))]}, "")
    assert read_constraint({"hostlist": ["h[0-99999]"]}, "") is not None


# -- enrollments ------------------------------------------------------------------------------------------------------


def test_a_flood_of_enrollments_shuts_no_agent_out(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of too many that wait, those go that asked the longest ago; an agent that is there asks every few seconds."""
    monkeypatch.setattr(access, "_MOST", 30)
    monkeypatch.setattr(access, "_SEEN_EVERY", 0.0)

    def ask(cluster: str) -> str:
        request = {"op": "enroll", "cluster": cluster, "identity": f"identity-of-{cluster}-long-enough"}
        return str(rig.rpc.call(request)["status"])

    assert ask("honest") == "pending"
    for n in range(70):
        assert ask(f"flood{n}") == "pending"
        if n % 20 == 0:
            assert ask("honest") == "pending"
    assert ask("late") == "pending"
    listed = {e["cluster"] for e in rig.rpc.call({"op": "enrollments"})["enrollments"]}
    assert {"honest", "late"} <= listed
    assert len(listed) <= 30
