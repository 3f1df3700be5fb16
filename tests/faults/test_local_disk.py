"""The executor `local` on a disk that is full: it is down, nothing is lost or told wrongly, and it goes on after."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = r"""
import json, os, subprocess, sys, time
from pathlib import Path
folder = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], check=True)
from rainbow_agents.executors.base import Capacity, Context, Held
from rainbow_agents.executors.local import LocalExecutor
from rainbow_agents.executors.testing import Rig

rig = Rig(lambda listener: LocalExecutor(Context("blue", "owner", folder / "state", Capacity(1, 8)), listener))
seen = {}
go = Path(sys.argv[2]) / "go"
running = rig.work(f"while [ ! -e {go} ]; do sleep 0.05; done; exit 3")
held = rig.submit(running)
rig.executor.release([held])
rig.wait_for("Started", running.mark)
waiting = rig.submit(rig.work("exit 0"))

filler = os.open(folder / "filler", os.O_WRONLY | os.O_CREAT)
try:
    while os.write(filler, b"x" * 4096):
        pass
except OSError:
    os.close(filler)
refused = rig.work("true")
rig.executor.submit([refused])
seen["submit"] = type(rig.until(lambda: next((e for e in rig.told if getattr(e, "mark", None) == refused.mark), None),
                                "an outcome")).__name__
seen["down"] = rig.wait_for("Down").reason
rig.executor.release([waiting])
go.touch()
time.sleep(2.5)  # longer than the runner's and the executor's tries: nothing may be told of the end meanwhile
seen["ended while full"] = rig.count("Ended", running.mark)
seen["left in new"] = len(list((folder / "state" / "new").iterdir()))
ups = sum(1 for e in rig.told if type(e).__name__ == "Up")
(folder / "filler").unlink()
rig.until(lambda: sum(1 for e in rig.told if type(e).__name__ == "Up") > ups, "up again")
seen["end"] = rig.wait_for("Ended", running.mark).returncode
found = rig.found(waiting)
if found is not None and found.phase == "held":
    rig.executor.release([waiting])  # as the agent does after each Up
seen["after"] = rig.wait_for("Ended", waiting.mark).state
seen["crashed"] = sum(1 for e in rig.told if type(e).__name__ == "Crashed")
print(json.dumps(seen))
rig.executor.close()
"""


def _namespace() -> list[str] | None:
    """How a program gets a mount table of its own here; None when it cannot."""
    for command in (["unshare", "-m"], ["unshare", "-rm"]):
        try:
            done = subprocess.run(
                [*command, "sh", "-c", "mount -t tmpfs -o size=1m tmpfs /mnt"], capture_output=True, timeout=20
            )
        except OSError:
            return None
        if done.returncode == 0:
            return command
    return None


def test_a_full_disk_takes_the_executor_down_and_loses_nothing(tmp_path: Path) -> None:
    namespace = _namespace()
    if namespace is None:
        pytest.skip("this user may not mount a file system of its own")
    for name in ("disk", "signals"):
        (tmp_path / name).mkdir()
    done = subprocess.run(
        [*namespace, sys.executable, "-c", PROGRAM, str(tmp_path / "disk"), str(tmp_path / "signals")],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout)
    assert seen["submit"] == "Undecided", "a full disk is no fault of the job"
    assert "No space left" in seen["down"]
    assert seen["ended while full"] == 0
    assert seen["left in new"] == 0
    assert (seen["end"], seen["after"], seen["crashed"]) == (3, "completed", 0)
