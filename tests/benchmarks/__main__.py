"""`make bench`: runs the parts, prints a table, writes build/bench.json, and with --plot build/bench.png.

Every figure is a ratio, or a time that is read beside another of the same run: machines differ, and drift.
A key whose part was not run, or cannot be run here (Flux), is null. Each part is written when it is done, with the
machine's load beside it (`<part>_load`, the mean of the last minute): one that fails takes no other's figures away.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

sys.path[:0] = [
    str(Path(__file__).parent),
    str(Path(__file__).parents[1] / "support"),
    str(Path(__file__).parents[1] / "system"),
]

#: Part -> (module, function).
PARTS: dict[str, tuple[str, str]] = {
    "matching": ("bench_matching", "run"),
    "choose": ("bench_choose", "run"),
    "store": ("bench_store", "run"),
    "broker": ("bench_broker", "run"),
    "latency": ("bench_latency", "run"),
    "relay": ("bench_relay", "run"),
    "cpu": ("bench_cpu", "run"),
    "scale": ("bench_scale", "run"),
    "heartbeats": ("bench_heartbeats", "run"),
    "bulk": ("bench_bulk", "run"),
    "celery": ("bench_celery", "run"),
    "flux": ("bench_flux", "run"),
    "startup": ("bench_startup", "run"),
    "waiting": ("bench_waiting", "run"),
    "backlog": ("bench_backlog", "run"),
    "web": ("bench_web", "run"),
    "dependencies": ("bench_dependencies", "run"),
}

#: What others read from build/bench.json.
KEYS = (
    "relay_ratio",
    "celery_ratio",
    "bulk_ratio",
    "accept_ms_median",
    "hop_ms_median",
    "new_shape_ms_1000",
    "known_shape_us_1000",
    "growth_clusters_10x",
    "growth_nodes_1000x",
    "register_ratio",
    "reregister_ratio",
    "choose_us_10000",
    "flux_ratio",
    "scheduler_mb_10000",
    "help_ratio",
    "waiting_over_ideal",
    "waiting_fastest_idle_share",
)


#: Programs beside the figures: first argument -> module with `main(arguments)`.
PROGRAMS = {
    "simulate": "simulate",
    "simulate-waiting": "simulate_waiting",
    "long-run": "long_run",
    "recorded": "recorded",
}


def main() -> int:
    if len(sys.argv) > 1 and sys.argv[1] in PROGRAMS:
        program: Callable[[list[str]], int] = importlib.import_module(PROGRAMS[sys.argv[1]]).main
        return program(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=[*PARTS], help="one part; may be repeated")
    parser.add_argument("--plot", action="store_true", help="draw build/bench.png")
    arguments = parser.parse_args()
    target = Path("build/bench.json")
    target.parent.mkdir(exist_ok=True)
    figures: dict[str, float | None] = dict.fromkeys(KEYS)
    if arguments.only and target.exists():
        figures |= json.loads(target.read_text())
    failed = [part for part in arguments.only or PARTS if not _measured(part, figures, target)]
    print(f"written to {target}")
    if failed:
        print(f"without figures: {', '.join(failed)}", file=sys.stderr)
    if arguments.plot:
        from plot import draw

        draw(figures, Path("build/bench.png"))
    return 1 if failed else 0


def _measured(part: str, figures: dict[str, float | None], target: Path) -> bool:
    """Run a part and write what it found into `figures` and `target`. Returns False where it failed."""
    module, function = PARTS[part]
    began = time.monotonic()
    try:
        run: Callable[[], dict[str, float | None]] = getattr(importlib.import_module(module), function)
        found = run()
    except Exception:
        print(f"{part}: failed after {time.monotonic() - began:.0f} s", file=sys.stderr)
        traceback.print_exc()
        return False
    load = os.getloadavg()[0]
    figures |= {**found, f"{part}_load": round(load, 2)}
    target.write_text(json.dumps(figures, indent=2, sort_keys=True) + "\n")
    print(f"{part} ({time.monotonic() - began:.0f} s, load {load:.1f})")
    for name, value in found.items():
        print(f"  {name:36} {'-' if value is None else f'{value:12.3f}'}", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
