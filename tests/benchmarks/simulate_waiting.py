"""Jobs that wait, simulated: the classes that really hold, rank and bind them, against clusters as discrete events.

`make simulate` runs it after the simulation of decisions. Scenarios:

- `federation`: 20 clusters of random size and speed, 20,000 jobs of log-normal length, against one pool of all cores.
- `shares`: five users of weights 1, 1, 2, 4 and 8 on three clusters of unequal speed, all of them with jobs that wait.
- `latecomer`: one user has 100,000 jobs waiting when another one submits 100; and those 100 alone on half the cores.
- `large`: a job of all cores of the largest cluster, under a flow of small ones that fills all clusters.
- `thousand`: 1,000 clusters and 1,000,000 jobs that wait: what an event costs.

Results go to build/simulation-waiting.json, and with --plot FILE into a picture. The model is in `federation`.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any

import style
from federation import Federation, Run, Site, pool
from rainbow.models.shares import ShareTerms
from rainbow_workers.scheduling.share_terms import SharePolicy


def unequal(cores: int = 16) -> list[Site]:
    return [Site("fast", cores, 2.0), Site("middle", cores, 1.0), Site("slow", cores, 0.25)]


def federation(seed: int, jobs: int = 20_000, count: int = 20) -> dict[str, Any]:
    rng = random.Random(seed)
    sites = [Site(f"c{n:02}", rng.choice((16, 32, 64, 128)), 2 ** rng.uniform(-2, 2)) for n in range(count)]
    made = Federation(sites, seed=seed)
    for _ in range(jobs):
        made.submit("alice", rng.lognormvariate(math.log(10.0), 1.0))
    ideal = pool(made.jobs, sites)
    began = made.now
    made.run(lambda: not made.waiting)
    empty = made.now  # from here on nothing could go to the fastest cluster
    made.run(lambda: all(run.started < math.inf for run in made.jobs))
    last = max(run.started for run in made.jobs)
    fastest = max(sites, key=lambda site: site.speed)

    def use(*of: Site) -> list[float]:
        names, cores = {site.name for site in of}, sum(site.cores for site in of)
        return [n / cores for n in _busy((r for r in made.jobs if r.cluster in names), began, int(last - began))]

    parts = [max(0.0, min(empty, r.ended) - r.started) for r in made.jobs if r.cluster == fastest.name]
    return {
        "over_ideal": (last - began) / ideal,
        "fastest_idle_share": 1 - sum(parts) / (fastest.cores * (empty - began)),
        "scheduler_us_per_job": 1e6 * made.cost / jobs,
        "series": {"ideal": ideal, "use": [use(fastest), use(min(sites, key=lambda s: s.speed))], "all": use(*sites)},
    }


def _busy(runs: Iterable[Run], began: float, seconds: int) -> list[float]:
    """How many of these jobs ran, in the mean, in each second since `began`."""
    out = [0.0] * seconds
    for run in runs:
        if run.started < math.inf:
            first, end = run.started - began, run.ended - began
            for second in range(int(first), min(int(end), seconds - 1) + 1):
                out[second] += min(end, second + 1) - max(first, second)
    return out


def shares(seed: int, seconds: float = 180.0) -> dict[str, Any]:
    weights = {"a": 1.0, "b": 1.0, "c": 2.0, "d": 4.0, "e": 8.0}
    terms = {user: ShareTerms(weight=weight) for user, weight in weights.items()}
    made = Federation(unequal(), SharePolicy(terms), seed)
    for user in weights:
        for _ in range(int(seconds * 52)):
            made.submit(user, 1.0)
    began = made.now
    made.run(lambda: made.now >= began + seconds)
    rows: list[dict[str, float]] = []
    for minute in range(int(seconds // 60)):
        had = defaultdict[str, float](float)
        for run in made.jobs:
            start, end = run.started - began - 60 * minute, run.ended - began - 60 * minute
            had[run.user] += max(0.0, min(60.0, end) - max(0.0, start)) if start < math.inf else 0.0
        rows.append({user: had[user] / sum(had.values()) for user in weights})

    def busy(user: str) -> list[float]:
        return _busy((run for run in made.jobs if run.user == user), began, int(seconds))

    parts = [[row[user] / weights[user] for user in weights] for row in rows]
    return {
        "off_by_most": max(abs(row[u] - w / sum(weights.values())) for row in rows for u, w in weights.items()),
        "jain_least": min(sum(p) ** 2 / (len(p) * sum(x * x for x in p)) for p in parts),
        "series": {"weights": weights, "started": {u: busy(u) for u in weights}},
    }


def latecomer(seed: int, backlog: int = 100_000, late: int = 100) -> dict[str, Any]:
    made = Federation(unequal(), seed=seed)
    for _ in range(backlog):
        made.submit("alice", 1.0)
    began = made.now
    made.run(lambda: made.now >= began + 30.0)
    mine = [made.submit("bob", 1.0) for _ in range(late)]
    made.run(lambda: all(run.started < math.inf for run in mine))
    alone = Federation(unequal(8), seed=seed)
    others = [alone.submit("bob", 1.0) for _ in range(late)]
    alone.run(lambda: all(run.started < math.inf for run in others))
    waits = [median(run.started - run.came for run in runs) for runs in (mine, others)]
    return {
        "wait_over_half_alone": waits[0] / waits[1],
        "wait_s": waits[0],
        "series": {
            name: sorted(r.started - r.came for r in runs) for name, runs in (("late", mine), ("alone", others))
        },
    }


def large(seed: int, cores: int = 64, longest: float = 60.0) -> dict[str, Any]:
    rng = random.Random(seed)
    made = Federation(
        [Site("big", cores, 1.0), Site("small", cores // 2, 1.0), Site("other", cores // 2, 1.0)], seed=seed
    )
    for _ in range(20 * cores):
        made.submit("alice", min(longest, rng.lognormvariate(math.log(10.0), 1.0)))
    began = made.now
    made.run(lambda: made.now >= began + 30.0)
    whole = made.submit("bob", 10.0, cores)
    made.run(lambda: whole.started < math.inf)
    return {"wait_s": whole.started - whole.came, "longest_s": longest, "patience_s": made.policy.patience}


def thousand(seed: int, clusters: int = 1000, jobs: int = 1_000_000, seconds: float = 10.0) -> dict[str, Any]:
    rng = random.Random(seed)
    sites = [Site(f"c{n:04}", rng.choice((16, 32, 64)), 2 ** rng.uniform(-2, 2)) for n in range(clusters)]
    made = Federation(sites, seed=seed)
    made.notes = False
    users = [f"user{n}" for n in range(50)]
    for number in range(jobs):
        made.submit(users[number % len(users)], rng.lognormvariate(math.log(10.0), 1.0))
    began = made.now
    made.run(lambda: made.now >= began + 2.0)  # all clusters are full
    made.cost, made.looks, before, began = 0.0, 0, made.waiting, made.now
    made.run(lambda: made.now >= began + seconds)
    placed = before - made.waiting
    return {
        "jobs_placed_per_s": placed / (made.now - began),
        "looks_per_s": made.looks / (made.now - began),
        "scheduler_us_per_job": 1e6 * made.cost / placed,
        "waiting": made.waiting,
    }


SCENARIOS: dict[str, Callable[[int], dict[str, Any]]] = {
    "federation": federation,
    "shares": shares,
    "latecomer": latecomer,
    "large": large,
    "thousand": thousand,
}


def draw(found: dict[str, dict[str, Any]], target: Path) -> None:
    figure, (left, middle, right) = style.chart(13, 4.0, 3)
    series = found["federation"]["series"]
    left.plot(series["all"], label="all cores")
    left.plot(series["use"][0], label="the fastest cluster")
    left.plot(series["use"][1], ":", label="the slowest cluster")
    left.axvline(series["ideal"], color="grey", linestyle="--", label="one pool would end")
    left.set(xlabel="s", ylabel="busy", title="Use, until the last job starts", ylim=(0, 1.05))
    series = found["shares"]["series"]
    users = [*series["started"]]
    middle.stackplot(
        range(len(series["started"][users[0]])),
        [series["started"][user] for user in users],
        labels=[f"weight {series['weights'][user]:g}" for user in users],
    )
    middle.set(xlabel="s", ylabel="cores", title="Five users who all want more", ylim=(0, 48))
    series = found["latecomer"]["series"]
    for name, label in (("late", "behind 100,000 of another user"), ("alone", "alone, on half the cores")):
        right.plot(series[name], label=label)
    right.set(xlabel="job", ylabel="s", title="Waits of 100 jobs", ylim=(0, None))
    for axes in (left, middle, right):
        axes.legend(loc="lower right", frameon=axes is middle)
    style.save(figure, target)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks simulate-waiting", description=__doc__)
    parser.add_argument("--only", action="append", choices=[*SCENARIOS])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plot", type=Path, help="draw into this file")
    given = parser.parse_args(arguments)
    found: dict[str, dict[str, Any]] = {}
    for name in given.only or SCENARIOS:
        began = time.monotonic()
        found[name] = SCENARIOS[name](given.seed)
        print(f"{name} ({time.monotonic() - began:.0f} s)")
        for key, value in found[name].items():
            if key != "series":
                print(f"  {key:28} {value:12.3f}", flush=True)
    target = Path("build/simulation-waiting.json")
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps({"seed": given.seed, "results": found}, indent=2) + "\n")
    if given.plot and not given.only:
        draw(found, given.plot)
    return 0
