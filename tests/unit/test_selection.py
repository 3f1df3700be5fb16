from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from rainbow.errors import InvalidInput, UnknownPlugin
from rainbow.jobspec.request import Demand
from rainbow.models.requests import Bid
from rainbow.resources import Summary
from rainbow_workers.selection import Selections
from rainbow_workers.selection.base import Choice, JobView, Load, Offer
from rainbow_workers.selection.ranked import MOST

JOB = JobView("j", "u", None, 16, Demand(nodes=2, cores=8))


class Fleet:
    """Clusters by name: (total nodes, free nodes), eight cores each, and their state."""

    def __init__(self, state: Mapping[str, Mapping[str, Any]] | None = None, /, **nodes: tuple[int, int]) -> None:
        self.nodes, self.state = nodes, state or {}

    def load(self, cluster: str) -> Load:
        total, free = self.nodes[cluster]
        return Load(Demand(total, total * 8), Demand(free, free * 8), 0)

    def values(self, cluster: str) -> Mapping[str, Any]:
        return self.state.get(cluster, {})

    def summary(self, cluster: str) -> Summary:
        raise AssertionError(f"these plugins look at no graph, and asked for that of {cluster}")


def choose(name: str, fleet: Fleet, job: JobView = JOB, seed: int = 1, **options: Any) -> Choice:
    return Selections().get(name, options).choose(list(fleet.nodes), fleet, job, random.Random(seed))


BURST = Fleet(a=(4, 4), b=(4, 0), c=(8, 8))


class Counted(Fleet):
    """Counts how many clusters are looked at."""

    looked = 0

    def load(self, cluster: str) -> Load:
        self.looked += 1
        return super().load(cluster)

    def values(self, cluster: str) -> Mapping[str, Any]:
        self.looked += 1
        return super().values(cluster)


@pytest.mark.parametrize(
    "name",
    ["cheapest", "compatibility", "first", "least-loaded", "pack", "random", "round-robin", "spill-over", "weighted"],
)
def test_a_decision_looks_at_a_bounded_number_of_clusters(name: str) -> None:
    """All are full, so that none ends the search. `constraint` is bounded by time, `bid` by whom it asks."""
    names = [f"c{n}" for n in range(5 * MOST)]
    options: dict[str, dict[str, Any]] = {
        "spill-over": {"order": names},
        "weighted": {"weights": dict.fromkeys(names, 1)},
    }
    fleet = Counted({n: {"cost_per_node_hour": 1.0} for n in names}, **dict.fromkeys(names, (4, 0)))
    choice = choose(name, fleet, **options.get(name, {}))
    assert choice.cluster in names
    assert fleet.looked <= 2 * MOST


def test_random_takes_any_evenly() -> None:
    seen = Counter(choose("random", BURST, seed=n).cluster for n in range(900))
    assert set(seen) == {"a", "b", "c"}
    assert min(seen.values()) > 200


def test_first_goes_by_name() -> None:
    assert choose("first", Fleet(c=(1, 1), a=(1, 0), b=(1, 1))).cluster == "a"


def test_round_robin_takes_turns_within_a_set_of_candidates() -> None:
    selections = Selections()
    plugin = selections.get("round-robin", {})
    names = ["a", "b", "c"]
    taken = [plugin.choose(names, BURST, JOB, random.Random(1)).cluster for _ in range(6)]
    assert taken == ["a", "b", "c", "a", "b", "c"]
    assert plugin.choose(["a", "b"], BURST, JOB, random.Random(1)).cluster == "a"


def test_least_loaded_compares_and_looks_on_when_neither_has_room() -> None:
    assert all(choose("least-loaded", Fleet(a=(4, 4), b=(4, 1)), seed=n).cluster == "a" for n in range(30))
    full = {f"f{n}": (4, 0) for n in range(5)}
    assert all(choose("least-loaded", Fleet(**full, a=(4, 4)), seed=n).cluster == "a" for n in range(30))


def test_pack_fills_the_fullest_that_has_room() -> None:
    assert choose("pack", Fleet(a=(8, 8), b=(8, 3), c=(8, 1))).cluster == "b"
    assert choose("pack", Fleet(a=(8, 1), b=(8, 0))).cluster == "a"


def test_cheapest_drops_clusters_without_a_price() -> None:
    fleet = Fleet({"a": {"cost_per_node_hour": 3}, "b": {"cost_per_node_hour": 2.5}}, a=(4, 4), b=(4, 4), c=(4, 4))
    choice = choose("cheapest", fleet)
    assert choice.cluster == "b"
    assert choice.terms["cost_per_hour"] == 5.0
    assert choice.dropped == {"c": "cost_per_node_hour is not known"}
    assert choose("cheapest", Fleet(a=(1, 1))).cluster is None
    assert choose("cheapest", Fleet({"a": {"price": 1}}, a=(1, 1)), cost="price").cluster == "a"


def test_spill_over_keeps_to_its_order_while_there_is_room() -> None:
    fleet = Fleet(a=(4, 4), b=(4, 0), c=(4, 4))
    assert choose("spill-over", fleet, order=["b", "c", "a"]).cluster == "c"
    assert choose("spill-over", Fleet(a=(4, 0), b=(4, 1)), order=["a", "b"]).cluster == "b"


def test_weighted_follows_its_weights() -> None:
    seen = Counter(choose("weighted", BURST, seed=n, weights={"a": 0, "b": 3}).cluster for n in range(400))
    assert set(seen) == {"b", "c"}
    assert seen["b"] > 2 * seen["c"]
    assert choose("weighted", Fleet(a=(1, 1)), weights={"a": 0}).cluster is None


# -- constraint ------------------------------------------------------------------------------------------------

STATE = {
    "a": {"cost_per_node_hour": 3, "memory_per_node": 200},
    "b": {"cost_per_node_hour": 1, "memory_per_node": 400},
    "c": {"cost_per_node_hour": 2},
}
PARAMETERS = JobView("j", "u", None, 16, Demand(nodes=1), parameters={"seconds_per_gb": 0.4})


def fleet_of_three() -> Fleet:
    return Fleet(STATE, a=(4, 4), b=(4, 4), c=(4, 4))


def constraint(*steps: dict[str, str], fleet: Fleet | None = None) -> Choice:
    return choose("constraint", fleet or fleet_of_three(), PARAMETERS, priorities=[{"priority": 1, "steps": [*steps]}])


def test_a_filter_really_filters() -> None:
    """In the first rainbow a false outcome dropped nobody."""
    choice = constraint({"filter": "cost_per_node_hour < 2"})
    assert choice.cluster == "b"
    assert set(choice.dropped) == {"a", "c"}
    assert constraint({"filter": "cost_per_node_hour > 9"}).cluster is None


def test_a_sort_really_sorts_and_in_the_direction_it_says() -> None:
    """In the first rainbow the two were swapped, and the result thrown away."""
    assert constraint({"sort_ascending": "cost_per_node_hour"}, {"select": "first"}).cluster == "b"
    assert constraint({"sort_descending": "cost_per_node_hour"}, {"select": "first"}).cluster == "a"
    assert constraint({"sort_ascending": "cost_per_node_hour"}, {"select": "last"}).cluster == "a"


def test_a_missing_name_drops_that_cluster_with_a_reason() -> None:
    choice = constraint(
        {"calc": "build_cost=(cost_per_node_hour * (memory_per_node * seconds_per_gb)/60/60)"},
        {"sort_ascending": "build_cost"},
        {"select": "first"},
    )
    assert choice.cluster == "b"
    assert choice.dropped == {"c": "memory_per_node has no value"}
    assert choice.terms["build_cost"] == pytest.approx(400 * 0.4 / 3600)


def test_the_next_priority_is_tried_when_one_leaves_nobody() -> None:
    priorities = [
        {"priority": 2, "steps": [{"select": "first"}, {"calc": "x=1"}]},
        {"priority": 1, "steps": [{"filter": "nodes_free > 100"}]},
    ]
    choice = choose("constraint", fleet_of_three(), PARAMETERS, priorities=priorities)
    assert choice.cluster == "a"
    assert choice.terms["priority"] == 2


def test_yaml_inside_yaml_as_the_first_rainbow_wrote_it() -> None:
    text = """
    - priority: 1
      steps:
      - filter: "nodes_free > 0"
      - calc: "build_cost=(cost_per_node_hour * (memory_per_node * seconds_per_gb)/60/60)"
      - sort_descending: build_cost
      - select: first
    """
    assert choose("constraint", fleet_of_three(), PARAMETERS, priorities=text).cluster == "a"


def test_free_is_what_is_free_less_what_is_reserved() -> None:
    """The state as reported is older than what was assigned since."""
    fleet = Fleet({"a": {"nodes_free": 4}}, a=(4, 0))
    assert constraint({"filter": "nodes_free > 0"}, fleet=fleet).cluster is None


@pytest.mark.parametrize(
    "priorities",
    [
        None,
        [],
        "nope: [",
        [{"priority": 1}],
        [{"priority": "x", "steps": [{"filter": "1"}]}],
        [{"priority": 1, "steps": []}],
        [{"priority": 1, "steps": [{"filter": "1", "calc": "a=1"}]}],
        [{"priority": 1, "steps": [{"frobnicate": "1"}]}],
        [{"priority": 1, "steps": [{"calc": "a==1"}]}],
        [{"priority": 1, "steps": [{"calc": "1=a"}]}],
        [{"priority": 1, "steps": [{"select": "best"}]}],
        [{"priority": 1, "steps": [{"filter": "__import__('os')"}]}],
        [{"priority": 1, "steps": [{"filter": "1"}], "more": 1}],
        "!!python/object/apply:os.system [true]",
    ],
)
def test_wrong_priorities_are_refused_before_any_job(priorities: object) -> None:
    with pytest.raises(InvalidInput):
        choose("constraint", fleet_of_three(), priorities=priorities)


@pytest.mark.parametrize("name", ["pack", "cheapest", "spill-over", "weighted", "constraint"])
def test_unknown_options_are_named(name: str) -> None:
    with pytest.raises(InvalidInput, match="frobnicate"):
        choose(name, BURST, frobnicate=1)


def test_an_unknown_selection_lists_the_choices() -> None:
    with pytest.raises(UnknownPlugin, match="least-loaded"):
        choose("best", BURST)


def test_options_of_one_job_are_not_another_s() -> None:
    """In the first rainbow one client's options applied to all."""
    selections = Selections()
    mine = selections.get("spill-over", {"order": ["a"]})
    other = selections.get("spill-over", {"order": ["c"]})
    fleet = fleet_of_three()
    names = list(fleet.nodes)
    assert mine.choose(names, fleet, JOB, random.Random(1)).cluster == "a"
    assert other.choose(names, fleet, JOB, random.Random(1)).cluster == "c"
    assert selections.get("spill-over", {"order": ["a"]}) is mine


# -- bid ------------------------------------------------------------------------------------------------------------


def offered(fleet: Fleet, offers: Mapping[str, Offer], **options: Any) -> Choice:
    job = replace(JOB, offers=offers)
    return Selections().get("bid", options).choose(list(fleet.nodes), fleet, job, random.Random(1))


def yes(eta: float | None = 0.0, cost: float | None = None) -> Offer:
    return Offer(1000.0, Bid(id="j", will=True, eta=eta, cost=cost))


def no(code: str = "policy") -> Offer:
    return Offer(1000.0, Bid(id="j", will=False, code=code))


def test_bid_asks_those_with_most_room_or_by_rank() -> None:
    fleet = Fleet({"a": {"price": 3}, "b": {"price": 1}, "d": {"price": 2}}, a=(8, 8), b=(8, 6), c=(8, 7), d=(8, 0))
    plugin: Any = Selections().get("bid", {"ask": 2})
    assert plugin.shortlist(list(fleet.nodes), fleet, JOB, random.Random(1)) == ["a", "c"]
    asked = replace(JOB, offers={"a": no(), "c": no()})
    assert plugin.shortlist(list(fleet.nodes), fleet, asked, random.Random(1)) == ["b", "d"]
    ranked: Any = Selections().get("bid", {"rank": "price"})
    assert ranked.shortlist(list(fleet.nodes), fleet, JOB, random.Random(1)) == ["b", "d", "a"]


FULL = {"nodes_free": 0, "cores_free": 0}


def test_bid_takes_the_lowest() -> None:
    fleet = Fleet({"a": FULL, "b": FULL}, a=(4, 0), b=(4, 0), c=(4, 0))
    offers = {"a": yes(30, 1), "b": yes(20, 9), "c": no()}
    first = offered(fleet, offers)
    assert (first.cluster, first.terms["promised"], first.terms["score"]) == ("b", 1020.0, 20.0)
    assert first.dropped == {"c": "it says no: policy"}
    assert offered(fleet, offers, by="cost").cluster == "a"
    assert offered(fleet, offers, by="eta + cost").cluster == "b"
    assert offered(fleet, offers, by="eta + 10 * cost").cluster == "a"


def test_bid_without_an_eta_or_price_ranks_behind() -> None:
    fleet = Fleet(a=(4, 4), b=(4, 0))
    assert offered(fleet, {"a": yes(None), "b": yes(500)}).cluster == "b"
    assert offered(fleet, {"a": yes(0), "b": yes(5, 2)}, by="cost").cluster == "b"
    assert offered(fleet, {"a": yes(None), "b": no()}).cluster == "a"


def test_bid_adds_what_was_given_away_since() -> None:
    hour = replace(JOB, duration=3600.0)
    state = {"a": {"nodes_free": 4, "cores_free": 32}, "b": {"nodes_free": 0, "cores_free": 0}}
    offers = {"a": yes(0), "b": yes(900)}

    def chosen(free: int) -> str | None:
        fleet = Fleet(state, a=(4, free), b=(4, 0))
        job = replace(hour, offers=offers)
        return Selections().get("bid", {}).choose(["a", "b"], fleet, job, random.Random(1)).cluster

    assert chosen(4) == "a"
    assert chosen(2) == "a", "there is room for this one"
    assert chosen(-4) == "b", "two clusters' worth of hours were promised there since"


def test_bid_remembers_who_was_late() -> None:
    fleet = Fleet({"a": {"bid_error_s": 600.0}, "b": {**FULL, "bid_error_s": -50.0}}, a=(4, 4), b=(4, 0))
    assert offered(fleet, {"a": yes(0), "b": yes(100)}).cluster == "b"
    assert offered(fleet, {"a": yes(0), "b": yes(700)}).cluster == "a"


def test_bid_with_nobody_saying_yes() -> None:
    fleet = Fleet(a=(4, 4), b=(4, 2), c=(4, 3))
    silent = Offer(1000.0, None, "no answer within 2 s")
    offers = {"a": no("busy"), "b": silent, "c": silent}
    assert offered(fleet, offers).cluster == "c"
    assert offered(fleet, {"a": no("busy"), "b": no()}).cluster == "a", "busy is no for now only"
    assert offered(fleet, offers, silent="never").cluster is None
    none = offered(fleet, {"a": no(), "b": no(), "c": no()})
    assert (none.cluster, set(none.dropped)) == (None, {"a", "b", "c"})


@pytest.mark.parametrize(
    "options",
    [{"by": 3}, {"by": "eta +"}, {"ask": 0}, {"ask": 1000}, {"within": 0}, {"silent": "first"}, {"colour": 1}],
)
def test_bid_options_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Selections().get("bid", options)


@pytest.mark.parametrize("name", ["cheapest", "first", "least-loaded", "pack", "random", "round-robin", "weighted"])
def test_an_option_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"selection {name} has no option 'x'"):
        Selections().get(name, {"x": 1})
