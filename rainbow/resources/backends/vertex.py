"""A graph backend that searches over single vertices: plain, exact, slow.

It shares no code with folding and counting, only the rules, so that property tests can compare the two. A search
stops with `TookTooLong` after a number of steps; for graphs of some dozens of vertices that is rare.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from typing import Any

from rainbow.jobspec.request import Request, Requirement, Want
from rainbow.plugins import load
from rainbow.resources.backends.vertex_graph import Vertex, VertexGraph, holds, meets_host, unfolded
from rainbow.resources.matching.answer import Unmet
from rainbow.resources.matching.matcher import Matcher, MatcherName
from rainbow.resources.readers.summary import Summary

MAX_SLOTS = 64
"""Slots are counted up to here."""

MAX_STEPS = 200_000
"""Steps of a search before it is given up."""


class TookTooLong(Exception):
    """The search was given up."""


def _choices(wants: tuple[Want, ...]) -> Iterator[tuple[Want, ...]]:
    """Every way to settle the alternatives in a list of wants; what asks for nothing is left out."""
    rows: list[list[Want]] = []
    either: list[Want] = []
    for want in wants:
        if want.count.min < 1:
            continue
        kind = "slot" if want.type == "xor_slot" else want.type
        ways = [Want(kind, want.count, kids, requires=want.requires) for kids in _choices(want.children)]
        if want.type == "xor_slot":
            either += ways
        else:
            rows.append(ways)
    if either:
        rows.append(either)
    yield from product(*rows)


class _Slot:
    """A slot to be placed: its content must go into one of `regions` (None: anywhere in the world)."""

    def __init__(self, content: tuple[Want, ...], regions: list[frozenset[Vertex]] | None) -> None:
        self.content, self.regions = content, regions


class Search:
    """One request on one graph."""

    def __init__(self, graph: VertexGraph, request: Request, max_steps: int | None = None) -> None:
        self.graph, self.request = graph, request
        self.steps = MAX_STEPS if max_steps is None else max_steps
        gone = {
            v
            for v in graph.vertices
            if v.is_target and not (holds(request.constraint, v) and meets_host(request.host, v, graph.root))
        }
        self.usable = {v for v in graph.vertices if v not in gone and gone.isdisjoint(v.above())}
        self._hosts: dict[tuple[Vertex, Want], bool] = {}

    def fits(self, copies: int = 1) -> bool:
        """Whether `copies` of the request can be placed at once. Raises TookTooLong."""
        inside = not self.graph.at_or_above
        ways = _choices(self.request.resources)
        return any(self._world([self.graph.root], wants * copies, inside) for wants in ways)

    def _world(self, forest: list[Vertex], wants: tuple[Want, ...], inside: bool) -> bool:
        """Place all wants on disjoint subtrees of a forest."""
        everything = [v for top in forest for v in (top, *top.below()) if v in self.usable]
        agenda: list[tuple[Want | _Slot, frozenset[Vertex]]] = []
        for want in wants:
            self._spread(want, frozenset(everything), forest, inside, agenda)
        # What has fewest places to go is placed first.
        agenda.sort(key=lambda item: isinstance(item[0], _Slot))
        order = {vertex: at for at, vertex in enumerate(everything)}
        return self._place(agenda, 0, set(), order, inside, -1)

    def _spread(
        self,
        want: Want,
        scope: frozenset[Vertex],
        forest: list[Vertex],
        inside: bool,
        agenda: list[tuple[Want | _Slot, frozenset[Vertex]]],
    ) -> None:
        if want.type != "slot":
            agenda += [(want, scope)] * (want.count.min if want.children else 1)
            return
        for _ in range(want.count.min):
            if inside or self.graph.at_or_above & _names(want):
                for child in want.children:
                    self._spread(child, scope, forest, inside, agenda)
            else:
                agenda.append((_Slot(want.children, self._regions(forest, scope)), scope))

    def _regions(self, forest: list[Vertex], scope: frozenset[Vertex]) -> list[frozenset[Vertex]]:
        """The insides of nodes, and what hangs beside nodes at one vertex."""
        regions: list[frozenset[Vertex]] = []

        def visit(row: list[Vertex]) -> None:
            beside: set[Vertex] = set()
            for vertex in row:
                if vertex.is_target:
                    regions.append(frozenset(v for v in vertex.below() if v in scope))
                elif any(v.is_target for v in vertex.below()):
                    visit(vertex.children)
                else:
                    beside.update(v for v in (vertex, *vertex.below()) if v in scope)
            if beside:
                regions.append(frozenset(beside))

        visit(forest)
        return regions

    def _place(
        self,
        agenda: list[tuple[Want | _Slot, frozenset[Vertex]]],
        at: int,
        taken: set[Vertex],
        order: dict[Vertex, int],
        inside: bool,
        after: int,
    ) -> bool:
        """Place ``agenda[at:]``.

        `after`: equal items in a row are placed in rising order, so that mere exchanges are not tried.
        """
        self.steps -= 1
        if self.steps < 0:
            raise TookTooLong
        if at == len(agenda):
            return True
        item, scope = agenda[at]
        if isinstance(item, _Slot):
            assert item.regions is not None
            for number, region in enumerate(item.regions):
                if number < after:
                    continue
                more: list[tuple[Want | _Slot, frozenset[Vertex]]] = []
                for child in item.content:
                    self._spread(child, region, [], True, more)
                same = at + 1 < len(agenda) and _same(agenda[at + 1][0], item)
                rest = agenda[at + 1 :]
                if self._slot_then(more, rest, taken, order, inside, number if same else -1):
                    return True
            return False
        if item.children:
            same = at + 1 < len(agenda) and _same(agenda[at + 1][0], item) and agenda[at + 1][1] is scope
            for vertex in sorted(scope, key=order.__getitem__):
                if order[vertex] <= after or not self._free(vertex, taken) or not self._can_host(vertex, item, inside):
                    continue
                taken.add(vertex)
                if self._place(agenda, at + 1, taken, order, inside, order[vertex] if same else -1):
                    return True
                taken.discard(vertex)
            return False
        able = [
            v
            for v in sorted(scope, key=order.__getitem__)
            if v.type == item.type and v.size > 0 and self._meets(v, item.requires)
        ]
        return self._gather(able, 0, item.count.min, agenda, at, taken, order, inside)

    def _slot_then(
        self,
        content: list[tuple[Want | _Slot, frozenset[Vertex]]],
        rest: list[tuple[Want | _Slot, frozenset[Vertex]]],
        taken: set[Vertex],
        order: dict[Vertex, int],
        inside: bool,
        after: int,
    ) -> bool:
        # The first of the rest, when it is an equal slot, must not go to an earlier region than this one.
        return self._place([*content, *_marked(rest, after)], 0, taken, order, inside, -1)

    def _gather(
        self,
        able: list[Vertex],
        first: int,
        missing: int,
        agenda: list[tuple[Want | _Slot, frozenset[Vertex]]],
        at: int,
        taken: set[Vertex],
        order: dict[Vertex, int],
        inside: bool,
    ) -> bool:
        """Collect vertices for a leaf until their sizes reach its count, then go on."""
        self.steps -= 1
        if self.steps < 0:
            raise TookTooLong
        if missing <= 0:
            return self._place(agenda, at + 1, taken, order, inside, -1)
        tried: set[tuple[Any, ...]] = set()
        for number in range(first, len(able)):
            vertex = able[number]
            if not self._free(vertex, taken):
                continue
            # Equal leaves below one parent are as good as each other.
            if not vertex.children:
                twin = (vertex.parent, vertex.type, vertex.size, _linked(vertex))
                if twin in tried:
                    continue
                tried.add(twin)
            taken.add(vertex)
            if self._gather(able, number + 1, missing - vertex.size, agenda, at, taken, order, inside):
                return True
            taken.discard(vertex)
        return False

    def _free(self, vertex: Vertex, taken: set[Vertex]) -> bool:
        return vertex not in taken and taken.isdisjoint(vertex.above()) and taken.isdisjoint(vertex.below())

    def _can_host(self, vertex: Vertex, want: Want, inside: bool) -> bool:
        if vertex.type != want.type or not self._meets(vertex, want.requires):
            return False
        free = inside or vertex.is_target or not any(v.is_target for v in vertex.below())
        key = (vertex, want)
        known = self._hosts.get(key)
        if known is None:
            known = self._hosts[key] = self._world(vertex.children, want.children, free)
        return known

    def _meets(self, vertex: Vertex, requires: tuple[Requirement, ...]) -> bool:
        return all(self._meets_one(vertex, requirement) for requirement in requires)

    def _meets_one(self, vertex: Vertex, requirement: Requirement) -> bool:
        parts = (requirement, *requirement.also)
        tests = [(p.field, load("rainbow.match", p.algorithm)().accepting(dict(p.arguments))) for p in parts]
        rows = vertex.links.get(requirement.subsystem, ())
        return any(all(field in row and accepts(row[field]) for field, accepts in tests) for row in rows)


def _linked(vertex: Vertex) -> bool | str:
    return vertex.key if vertex.links else False


def _names(want: Want) -> set[str]:
    if want.type != "slot":
        return {want.type}
    return set().union(*(_names(child) for child in want.children))


def _same(left: Want | _Slot, right: Want | _Slot) -> bool:
    if isinstance(left, _Slot) and isinstance(right, _Slot):
        return left.content == right.content
    return left is right


class _After(_Slot):
    """A slot of which the regions before one number have been used up by equal slots."""


def _marked(
    rest: list[tuple[Want | _Slot, frozenset[Vertex]]], after: int
) -> list[tuple[Want | _Slot, frozenset[Vertex]]]:
    if after < 0 or not rest or not isinstance(rest[0][0], _Slot):
        return rest
    slot = rest[0][0]
    assert slot.regions is not None
    return [(_After(slot.content, slot.regions[after:]), rest[0][1]), *rest[1:]]


class VertexMatches:
    """The answer to one request (see `base.GraphMatches`)."""

    def __init__(self, clusters: Mapping[str, _Entry], request: Request) -> None:
        self._clusters, self._request = clusters, request
        self._slots: dict[str, int | None] = {}
        self.candidates = [name for name in clusters if self._found(name)]

    def _found(self, name: str) -> int | None:
        """1 when the request fits, 0 when it does not, None when the search was given up."""
        if name not in self._slots:
            entry = self._clusters[name]
            try:
                self._slots[name] = int(entry.agrees(self._request) and Search(entry.graph, self._request).fits())
            except TookTooLong:
                self._slots[name] = None
        return self._slots[name]

    def unmet(self, name: str) -> tuple[Unmet, ...]:
        """Why the request does not fit; empty when it does."""
        found = self._found(name)
        if found is None:
            return (Unmet("budget", "the search for a placement was given up"),)
        return () if found else (Unmet("no-placement", "no placement of its vertices was found"),)

    def slots(self, name: str) -> int:
        """How many of the request fit at once, at most `MAX_SLOTS`."""
        slots = self._found(name) or 0
        graph = self._clusters[name].graph
        with suppress(TookTooLong):
            while 0 < slots < MAX_SLOTS and Search(graph, self._request).fits(slots + 1):
                slots += 1
        return slots


@dataclass(frozen=True, slots=True)
class _Entry:
    graph: VertexGraph
    summary: Summary
    matcher: MatcherName

    def agrees(self, request: Request) -> bool:
        """Whether Fluxion's walk finds a placement too, where the cluster asks for that."""
        if self.matcher == "count":
            return True
        asked = Matcher(request)
        view = asked.view(self.summary)
        return view is not None and asked.walks(view)


class VertexBackend:
    """See `base.GraphBackend`. For small graphs: the cost grows without bound."""

    def __init__(self) -> None:
        self._clusters: dict[str, _Entry] = {}

    def update(self, name: str, summary: Summary, matcher: MatcherName = "count") -> None:
        self._clusters[name] = _Entry(unfolded(summary), summary, matcher)

    def remove(self, name: str) -> None:
        self._clusters.pop(name, None)

    def query(self, request: Request) -> VertexMatches:
        return VertexMatches(dict(self._clusters), request)
