"""Habits of other command lines: short ids, choosing and showing jobs, the job's exit code, completion."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rainbow.cli import completion, watching
from rainbow.models.job import Dispatch
from running import Rainbow, Shell, alone, eventually, graph, in_force, in_memory, refuses


@pytest.fixture
def rainbow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rainbow]:
    alone(monkeypatch, tmp_path)
    yield from in_force(in_memory(tmp_path), monkeypatch)


def waits(dispatch: Dispatch) -> list[dict[str, Any]]:
    return [{"state": "accepted", "flux_id": "f1"}, {"state": "running"}]


# -- names of jobs ------------------------------------------------------------------------------------


def test_a_job_is_named_by_its_first_digits_its_name_or_as_the_last(rainbow: Rainbow, sh: Shell) -> None:
    rainbow.cluster("blue")
    first = sh("submit --wait --json --name one true").json["id"]
    second = sh("submit --wait --json --name two true").json["id"]
    assert sh(f"status {first[:8]} --json").json["id"] == first
    assert sh(f"status {first[:13].upper()} --json").json["id"] == first
    assert sh("status @- --json").json["id"] == second
    assert sh("explain %one --json").json["id"] == first
    assert sh(f"wait {first[:6]} %two @-").out.count("completed") == 2
    assert "no job with id 0000" in sh("status 00000000", code=5).err
    assert "no job named 'three'" in sh("status %three", code=5).err
    assert "is no job id" in sh("status zzzz", code=2).err


def test_digits_that_several_ids_begin_with_are_refused(rainbow: Rainbow, sh: Shell) -> None:
    rainbow.cluster("blue")
    for last in "12":
        sh(f"submit --id 6f1c1f7e-3f0e-4c56-9a53-00000000000{last} true")
    said = sh("cancel 6f1c1f7e", code=2)
    assert "2 jobs have an id that begins with 6f1c1f7e: give more of it" in said.err


def test_the_last_job_is_ones_own(rainbow: Rainbow, sh: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    rainbow.cluster("blue")
    mine = sh("submit --wait --json true").json["id"]
    monkeypatch.setenv("RAINBOW_TOKEN", rainbow.token("submit", "somebody"))
    theirs = sh("submit --wait --json true").json["id"]
    monkeypatch.setenv("RAINBOW_TOKEN", rainbow.token())
    assert sh("status @- --json").json["id"] == mine != theirs


def test_ids_come_from_standard_input(rainbow: Rainbow, sh: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    rainbow.cluster("blue", act=waits)
    ids = [sh("submit true").out.strip() for _ in range(2)]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(ids)))
    eventually(lambda: sh("jobs --count --json").json["count"] == {"running": 2})
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(ids)))
    assert sh("cancel -").out.splitlines() == [f"{i}  cancel requested (running)" for i in ids]
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert "no job ids on standard input" in sh("wait -", code=2).err


# -- lists --------------------------------------------------------------------------------------------


@pytest.fixture
def mixed(rainbow: Rainbow, sh: Shell) -> dict[str, str]:
    """A job that completed on blue, one that failed on red, one that runs on green."""
    rainbow.cluster("blue")
    rainbow.cluster(
        "red", act=lambda d: [{"state": "accepted"}, {"state": "running"}, {"state": "failed", "returncode": 7}]
    )
    rainbow.cluster("green", act=waits)
    ids = {name: sh(f"submit -C {name} --name job-{name} true").out.strip() for name in ("blue", "red", "green")}

    def in_state(name: str, state: str) -> bool:
        return bool(sh(f"status {ids[name]} --json").json["state"] == state)

    for name, state in (("blue", "completed"), ("red", "failed"), ("green", "running")):
        eventually(partial(in_state, name, state))
    return ids


def test_jobs_are_chosen_sorted_and_counted(mixed: dict[str, str], sh: Shell) -> None:
    def listed(options: str) -> list[str]:
        return [name for i in sh(f"jobs -q {options}").out.split() for name in mixed if mixed[name] == i]

    assert listed("") == ["green", "red", "blue"]
    assert listed("--state failed,completed") == ["red", "blue"]
    assert listed("-s ended") == ["red", "blue"]
    assert listed("-s active") == ["green"]
    assert listed("-C blue -C green") == ["green", "blue"]
    assert listed("--name 'job-*e*' --sort name") == ["blue", "green", "red"]
    assert listed("--sort -cluster") == ["red", "green", "blue"]
    assert listed("--user root") == ["green", "red", "blue"]
    assert listed("--user nobody") == []
    assert listed("--since 1h") == ["green", "red", "blue"]
    assert listed("--since 2100-01-01") == []
    assert sh("jobs --count").out.split() == ["running", "1", "completed", "1", "failed", "1", "total", "3"]
    assert sh("jobs --count --json -s ended").json["count"] == {"completed": 1, "failed": 1}


def test_a_list_that_is_cut_says_so(mixed: dict[str, str], sh: Shell) -> None:
    cut = sh("jobs --limit 2")
    assert len(cut.out.splitlines()) == 3
    assert "there are more: go on with --before " in cut.err
    first = sh("jobs --limit 2 --json").json
    assert first["more"] is True
    rest = sh(f"jobs --before {first['next']} --json").json
    assert [j["name"] for j in first["jobs"] + rest["jobs"]] == ["job-green", "job-red", "job-blue"]
    assert sh(f"jobs -q --name 'job-*u*' --before {first['next']}").out.split() == [mixed["blue"]]
    assert sh(f"jobs --count --before {first['next']}").out.split() == ["completed", "1", "total", "1"]
    assert "before is a position" in sh("jobs --before nonsense", code=2).err
    whole = sh("jobs --limit 3")
    assert "more" not in whole.err
    assert sh("jobs --limit 3 --json").json["more"] is False


def test_a_line_of_ones_own_for_each_job(mixed: dict[str, str], sh: Shell) -> None:
    said = sh("jobs -s failed --format '{short} {name:>10}|{returncode}|{cluster}|{flux_id}'").out
    assert said == f"{mixed['red'][:8]}    job-red|7|red|-\n"
    assert "no field 'color'" in sh("jobs --format {color}", code=2).err
    assert "no field 'id.__class__'" in sh("jobs --format {id.__class__}", code=2).err
    assert "--format" in sh("jobs --format '{id'", code=2).err
    assert "choose of" in sh("jobs --sort color", code=2).err


def test_many_are_cancelled_at_once(mixed: dict[str, str], sh: Shell) -> None:
    assert sh("cancel --name 'job-*' --dry-run").out.split() == [mixed["green"]]
    assert sh("cancel --cluster red").err.strip() == "no jobs to cancel"
    assert sh("cancel --all").out.strip() == f"{mixed['green']}  cancel requested (running)"
    assert "either ids, or --all" in sh(f"cancel --all {mixed['red']}", code=2).err
    assert "has ended before: failed" in sh(f"cancel {mixed['red']}").out


# -- the job's word -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("ends", "code"), [(0, 0), (3, 3), (-9, 137), (None, 1)])
def test_the_exit_code_is_the_jobs(rainbow: Rainbow, sh: Shell, ends: int | None, code: int) -> None:
    def act(dispatch: Dispatch) -> list[dict[str, Any]]:
        end = {"state": "completed" if ends == 0 else "failed", "returncode": ends, "output": "the end\n"}
        return [{"state": "accepted"}, {"state": "running"}, {k: v for k, v in end.items() if v is not None}]

    rainbow.cluster("blue", act=act)
    said = sh("submit --wait true", code=code)
    assert said.out == "the end\n"
    assert sh("attach @-", code=code).out == "the end\n"
    assert sh("attach @- --json", code=code).json["output"] == "the end\n"


def test_a_time_limit_is_read_as_slurm_and_flux_read_it(rainbow: Rainbow, sh: Shell) -> None:
    seen: list[float] = []

    def act(dispatch: Dispatch) -> list[dict[str, Any]]:
        seen.append(dispatch.jobspec["attributes"]["system"]["duration"])
        return [{"state": "accepted"}, {"state": "running"}, {"state": "completed", "returncode": 0}]

    rainbow.cluster("blue", act=act)
    for text in ("10", "30s", "1:30:00", "2-00:00:00", "1h30m", "0"):
        sh(f"submit --wait -t {text} true")
    assert seen == [600, 30, 5400, 172800, 5400, 0]
    refused = sh("submit -t 5x true", code=2)
    assert (refused.out, "-t '5x' is no time limit" in refused.err) == ("", True)


def test_a_time_without_a_zone_is_the_local_time(rainbow: Rainbow, sh: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    rainbow.cluster("blue")
    monkeypatch.setenv("TZ", "PST8")
    time.tzset()
    try:
        soon = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + 7200))
        assert sh(f"submit --wait --expires {soon} --json true").json["status"] == "assigned"
        past = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() - 7200))
        assert sh(f"submit --expires {past} --json true", code=1).json["status"] == "expired"
        shown = sh("status @-").out
        assert "-08:00" in shown
    finally:
        monkeypatch.undo()
        time.tzset()


def test_jobspec_from_standard_input(rainbow: Rainbow, sh: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    rainbow.cluster("blue")
    text = "version: 1\nresources:\n- {type: slot, count: 1, label: a, with: [{type: core, count: 1}]}\n"
    text += "tasks:\n- {command: [hostname], slot: a, count: {per_slot: 1}}\nattributes: {system: {duration: 0}}\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    assert sh("submit --wait --jobspec -").out == "hello from blue\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(" "))
    assert "standard input is empty" in sh("submit --jobspec -", code=2).err


_INTERRUPTED = """
import os, signal, sys, threading, time
sys.path.insert(0, {tests!r})
from pathlib import Path
from running import Rainbow, in_memory
from rainbow.cli.exits import run

rainbow = in_memory(Path({folder!r}))
os.environ.update(RAINBOW_CONFIG=str(rainbow.config), RAINBOW_TOKEN=rainbow.token())

def act(dispatch):
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    return [{{"state": "accepted"}}, {{"state": "running"}}]

rainbow.cluster("blue", act=act)
code = run(["submit", "--wait", "sleep", "100"])
rainbow.end()
sys.exit(code)
"""


def test_ctrl_c_says_that_the_job_goes_on_and_how_to_end_it(tmp_path: Path) -> None:
    script = _INTERRUPTED.format(tests=str(Path(__file__).parent.parent / "support"), folder=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 130, done.stderr
    job = next(line for line in done.stderr.splitlines() if line.count("-") == 4 and " " not in line)
    assert (
        f"rainbow: job {job} goes on: `rainbow attach {job}` follows it, `rainbow cancel {job}` ends it" in done.stderr
    )
    assert "Traceback" not in done.stderr


# -- clusters that nobody serves ----------------------------------------------------------------------


def test_a_cluster_that_an_agent_serves_comes_first(rainbow: Rainbow, sh: Shell, tmp_path: Path) -> None:
    """However idle and large the one is that was only registered."""
    (tmp_path / "red.json").write_text(json.dumps(graph(8, 8, "red")))
    sh("register red --nodes red.json")
    sh("state red nodes_free=8 cores_free=64")
    rainbow.cluster("blue")
    eventually(lambda: "blue" in sh("submit --satisfy-only true").out.splitlines()[0])
    for _ in range(6):
        assert sh("submit -N 1 --json true").json["cluster"] == "blue"
    said = sh("submit -N 4 true")
    assert "assigned to red (1 of 2 clusters can run it): no agent serves it" in said.err
    assert sh("explain @- --json").json["reasons"]["red"]["code"] == "unserved"


def test_what_the_served_one_refuses_for_good_goes_to_the_other(rainbow: Rainbow, sh: Shell, tmp_path: Path) -> None:
    (tmp_path / "red.json").write_text(json.dumps(graph(2, 4, "red")))
    sh("register red --nodes red.json")
    rainbow.cluster("blue", act=refuses)
    eventually(lambda: sh("submit --json true").json["cluster"] == "blue")
    job = sh("submit true").out.strip()
    eventually(lambda: sh(f"status {job} --json").json["cluster"] == "red")


def test_a_job_that_is_held_is_shown_as_held(rainbow: Rainbow, sh: Shell) -> None:
    """After a refusal as well, and once, however often the clusters were looked at."""

    rainbow.cluster("blue", act=refuses)
    job = sh("submit --hold 60 true").out.strip()
    eventually(lambda: sh(f"status {job} --json").json["state"] == "held")
    assert sh("jobs -q -s held").out.split() == [job]
    time.sleep(2.5)  # two more looks
    text = sh(f"explain {job}").out
    assert len([line for line in text.splitlines() if "  held  " in line]) == 1
    assert "too late" not in text
    assert "held on" not in text
    assert "chosen" not in text
    assert sh("jobs --format '{state} {cluster}'").out == "held -\n"


# -- templates, lists that stay, standard input ----------------------------------------------------------


def test_a_template_becomes_jobs_whose_ids_are_printed(rainbow: Rainbow, sh: Shell) -> None:
    seen: list[Any] = []

    def act(dispatch: Dispatch) -> list[dict[str, Any]]:
        seen.append(dispatch.jobspec["tasks"][0]["command"])
        return waits(dispatch)

    rainbow.cluster("blue", act=act)
    ids = sh("bulksubmit --name run-{} echo {} ::: a b c").out.split()
    assert len(ids) == 3
    eventually(lambda: len(seen) == 3, 60)
    assert sorted(seen) == [["echo", "a"], ["echo", "b"], ["echo", "c"]]
    assert sh(f"status {ids[1]} --json").json["name"] == "run-b"


@pytest.mark.parametrize("command", ["clusters", "jobs --cluster blue"])
def test_a_list_is_drawn_again_until_ctrl_c(
    rainbow: Rainbow, sh: Shell, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    rainbow.cluster("blue")
    sh("submit --wait true")
    slept: list[float] = []

    def pause(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(watching, "pause", pause)
    assert sh(f"{command} --watch 0.5").out.count("blue") == 3
    assert slept == [0.5] * 3


def test_a_cluster_that_is_not_there_is_named(rainbow: Rainbow, sh: Shell) -> None:
    rainbow.cluster("blue")
    assert "there is no cluster 'nosuch': choose of blue" in sh("jobs --cluster nosuch").err


def test_a_graph_comes_through_a_pipe(rainbow: Rainbow, sh: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(graph())))
    said = sh("register green --nodes -")
    assert "registered green" in said.err


def test_the_last_member_takes_its_group_with_it_and_that_is_said(rainbow: Rainbow, sh: Shell) -> None:
    rainbow.cluster("blue")
    sh("groups set @dark blue")
    assert "group @dark has no clusters any more: it is gone" in sh("groups set @dark").err


# -- completion ---------------------------------------------------------------------------------------


def test_names_are_completed(rainbow: Rainbow, sh: Shell) -> None:
    rainbow.cluster("blue")
    rainbow.cluster("black", act=waits)
    sh("groups set @dark black")
    running = sh("submit -C black true").out.strip()
    over = sh("submit -C blue --wait --json true").json["id"]
    assert completion.clusters("bl") == ["black", "blue"]
    assert completion.clusters_and_groups("@") == ["@dark"]
    assert completion.jobs("") == sorted([running, over])
    assert completion.active_jobs(running[:3]) == [running]
    assert completion.states("a") == ["active", "assigned", "accepted"]


def test_completion_is_quiet_and_quick_without_rainbow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone(monkeypatch, tmp_path)
    monkeypatch.setenv("RAINBOW_BROKER_URL", "amqp://127.0.0.1:1/x")
    began = time.monotonic()
    assert completion.clusters("") == []
    assert time.monotonic() - began < 10


def test_the_shells_ask_for_them(rainbow: Rainbow, sh: Shell, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As bash does it: the command line in the environment, the proposals on stdout."""
    from rainbow.cli.exits import run

    rainbow.cluster("blue")
    monkeypatch.setenv("_RAINBOW_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "rainbow clusters drain b")
    monkeypatch.setenv("COMP_CWORD", "3")
    capsys.readouterr()
    with pytest.raises(SystemExit):
        run([])
    assert capsys.readouterr().out.split() == ["blue"]


def test_bulk_prints_its_ids_on_stdout_from_a_terminal_too(rainbow: Rainbow, tmp_path: Path) -> None:
    import pty

    (tmp_path / "f.jsonl").write_text('{"command": ["true"]}\n' * 3)
    script = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parent.parent / "support")!r})
from pathlib import Path
from running import in_memory
from rainbow.cli.exits import run
os.makedirs("r", exist_ok=True)
rainbow = in_memory(Path("r"))
os.environ.update(RAINBOW_CONFIG=str(rainbow.config), RAINBOW_TOKEN=rainbow.token())
rainbow.cluster("blue")
code = run(["bulk", "f.jsonl"])
rainbow.end()
sys.exit(code)
"""
    outer, inner = pty.openpty()
    with open(tmp_path / "ids.txt", "wb") as ids:
        process = subprocess.Popen(
            [sys.executable, "-c", script], stdout=ids, stderr=inner, cwd=tmp_path, env={**os.environ, "TERM": "xterm"}
        )
    os.close(inner)
    seen = b""
    try:
        while more := os.read(outer, 4096):
            seen += more
    except OSError:
        pass
    os.close(outer)
    assert process.wait(60) == 0, seen
    assert len((tmp_path / "ids.txt").read_text().split()) == 3
    assert b"3 submitted" in seen
