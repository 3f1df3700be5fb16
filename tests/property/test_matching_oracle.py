"""Folded matching against the plain search over single vertices: never a wrong yes, and no wrong no at this size."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from property.cases import Case, make_case, make_constraint
from property.oracle import compare
from property.vertex_documents import DocumentGraph
from rainbow.jobspec.request import Request
from rainbow.resources import Summary, match, read_graph
from rainbow.resources.backends.vertex_graph import holds
from rainbow.resources.matching.constraints import kept

SEEDS = [1, 2, 3, 4, 5, 6, 7, 8]
CASES = 400


@pytest.mark.parametrize("seed", SEEDS)
def test_random_cases(seed: int) -> None:
    outcomes: dict[str, list[int]] = {}
    for number in range(CASES):
        # The time limit is not what is tested here: a busy machine must not change the outcome.
        outcome, _ = compare(make_case(Random(f"test {seed}:{number}")), budget_s=5.0, max_steps=60_000)
        outcomes.setdefault(outcome, []).append(number)
    assert {name: found for name, found in outcomes.items() if name.startswith("wrong")} == {}
    assert len(outcomes["match"]) > CASES / 10
    assert len(outcomes.get("timeout", ())) < CASES / 50


cases = st.randoms(use_true_random=False).map(lambda rng: make_case(rng, limit=18))
quick = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@quick
@given(cases)
def test_any_case(case: Case) -> None:
    outcome, _ = compare(case, budget_s=5.0, max_steps=30_000)
    assume(outcome != "timeout")
    assert outcome in ("match", "no-match")


@quick
@given(cases)
def test_fluxion_never_gets_more_than_counting_allows(case: Case) -> None:
    summary = read_graph(case.graph, subsystems=case.subsystems)
    counted, walked = match(case.request, summary), match(case.request, summary, matcher="fluxion")
    assert counted.match or not walked.match
    for answer in (counted, walked):
        assert answer.match == (answer.unmet == ()) == (answer.slots > 0)


@quick
@given(cases)
def test_no_time_means_no_wrong_yes(case: Case) -> None:
    """With no time at all for competing needs, what is still said to match does."""
    summary = read_graph(case.graph, subsystems=case.subsystems)
    if match(case.request, summary, budget_s=0.0).match:
        assert match(case.request, summary, budget_s=5.0).match


@quick
@given(cases)
def test_what_is_stored_answers_alike(case: Case) -> None:
    summary = read_graph(case.graph, subsystems=case.subsystems)
    again = Summary.from_bytes(summary.to_bytes())
    assert again.digest == summary.digest
    assert match(case.request, again, budget_s=5.0) == match(case.request, summary, budget_s=5.0)


@quick
@given(cases, st.randoms(use_true_random=False))
def test_shuffled_documents_fold_equal(case: Case, rng: Random) -> None:
    graph = case.graph["graph"]
    keys = list(graph["nodes"])
    rng.shuffle(keys)
    edges = list(graph["edges"])
    rng.shuffle(edges)
    shuffled = {"graph": {"edges": edges, "nodes": [{"id": key, **graph["nodes"][key]} for key in keys]}}
    plain, other = read_graph(case.graph), read_graph(shuffled)
    assert plain.shape_key == other.shape_key
    request = Request(case.request.resources, case.request.constraint)
    assert (
        match(request, read_graph(case.graph, subsystems=case.subsystems), budget_s=5.0).match
        == match(request, read_graph(shuffled, subsystems=case.subsystems), budget_s=5.0).match
    )


@quick
@given(cases, st.randoms(use_true_random=False))
def test_constraints_keep_the_nodes_that_satisfy_them(case: Case, rng: Random) -> None:
    summary = read_graph(case.graph)
    constraint = make_constraint(rng, depth=3)
    hosts = summary.identity.hosts
    names = [hosts[at] for at in kept(constraint, summary.identity)] if hosts is not None else []
    vertices = DocumentGraph(case.graph).vertices
    assert sorted(names) == sorted(v.name for v in vertices if v.is_target and holds(constraint, v))
