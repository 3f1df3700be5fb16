"""Compare folded matching with the plain search on very many random cases, and count what comes out.

    python tests/property/oracle.py --cases 250000 --seed 1 --jobs 2

Ends with 1 when folded matching says yes where no placement exists; a wrong "no" is counted and shown.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from multiprocessing import get_context
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1]))

from property.cases import Case, make_case
from property.vertex_documents import DocumentGraph
from rainbow.resources.backends.vertex import Search, TookTooLong
from rainbow.resources.matching.matcher import Matcher
from rainbow.resources.readers.reader import read_graph

BLOCK = 500

COUNTED = (
    *("cases", "match", "no-match", "competing", "competing-match"),
    *("wrong-match", "wrong-slots", "wrong-no", "wrong-no-budget", "timeout"),
)


def compare(case: Case, budget_s: float = 0.002, max_steps: int = 200_000) -> tuple[str, bool]:
    """What happened on one case, and whether siblings competed.

    Outcomes: match, no-match (both agree), wrong-match, wrong-no, wrong-no-budget (said so), timeout,
    wrong-slots (more slots at once than there are).
    """
    summary = read_graph(case.graph, subsystems=case.subsystems)
    asked = Matcher(case.request, budget_s=budget_s)
    above = summary.root.above
    view = asked.view(summary)
    said = view is not None and asked.fits(view, above)
    competing = any(engine.top.compete(summary.root.nested) for engine in asked.engines(above))
    graph = DocumentGraph(case.graph)
    for name, document in case.subsystems.items():
        graph.link(name, document)
    try:
        true = Search(graph, case.request, max_steps).fits()
        if said and true:
            assert view is not None
            slots = asked.copies(view, above)
            if slots > 1 and slots <= 8 and not Search(graph, case.request, max_steps).fits(slots):
                return "wrong-slots", competing
    except TookTooLong:
        return "timeout", competing
    if said == true:
        return ("match" if true else "no-match"), competing
    if said:
        return "wrong-match", competing
    return ("wrong-no-budget" if view in asked.cut else "wrong-no"), competing


def run_block(job: tuple[int, int]) -> tuple[Counter[str], list[tuple[str, int]]]:
    """Cases `first` to `first + BLOCK` of a seed: counts, and the numbers of the bad ones."""
    seed, first = job
    counts: Counter[str] = Counter()
    bad: list[tuple[str, int]] = []
    for number in range(first, first + BLOCK):
        outcome, competing = compare(make_case(Random(f"{seed}:{number}")))
        counts["cases"] += 1
        counts[outcome] += 1
        if competing:
            counts["competing"] += 1
            if outcome == "match":
                counts["competing-match"] += 1
        if outcome.startswith("wrong"):
            bad.append((outcome, number))
    return counts, bad


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=250_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_args()
    blocks = [(args.seed, first) for first in range(0, args.cases, BLOCK)]
    total: Counter[str] = Counter()
    begun = time.monotonic()
    with get_context("spawn").Pool(args.jobs) as pool:
        for done, (counts, bad) in enumerate(pool.imap_unordered(run_block, blocks), 1):
            total += counts
            for outcome, number in bad:
                print(f"{outcome}: seed {args.seed}, case {number}", flush=True)
            if done % 50 == 0:
                print(f"{total['cases']} cases, {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    for name in COUNTED:
        print(f"{name:16} {total[name]}")
    return 1 if total["wrong-match"] or total["wrong-slots"] else 0


if __name__ == "__main__":
    sys.exit(main())
