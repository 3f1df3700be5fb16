"""What starting costs: the command line over a bare interpreter, and a scheduler that knows 10,000 clusters."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from statistics import median

SAMPLES = 9

_MEMORY = """
import resource, sys
sys.path[:0] = {paths!r}
from bench_choose import world_of
world = world_of(10_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def _cpu(arguments: list[str]) -> float:
    """CPU seconds of a whole process: steadier than wall time on a machine that others use."""
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, arguments
    return usage.ru_utime + usage.ru_stime


def ratio(mine: list[str], bare: list[str]) -> float:
    """Median of paired ratios, the two run in turn."""
    return median(_cpu(mine) / _cpu(bare) for _ in range(SAMPLES))


def run() -> dict[str, float]:
    rainbow = ["-m", "rainbow.cli"]
    memory = subprocess.run(
        [sys.executable, "-c", _MEMORY.format(paths=sys.path[:3])], capture_output=True, text=True, check=True
    )
    return {
        "help_ratio": ratio([*rainbow, "--help"], ["-c", "import typer"]),
        "help_over_interpreter": ratio([*rainbow, "--help"], ["-c", "pass"]),
        "submit_help_over_interpreter": ratio([*rainbow, "submit", "--help"], ["-c", "pass"]),
        "scheduler_mb_10000": float(memory.stdout),
    }


if __name__ == "__main__":
    began = time.monotonic()
    print(run(), time.monotonic() - began)
