"""A request made ready for matching: zero counts dropped, alternatives written out, requirements numbered."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice, product

from rainbow.jobspec.request import SLOT, XOR_SLOT, Constraint, HostNeed, Request, Requirement, Want

MAX_ALTERNATIVES = 256
"""Combinations of `xor_slot` alternatives that are tried; a jobspec with more is matched on the first of them."""

Wishes = tuple[str, tuple[Requirement, ...]]


class Need:
    """A `Want` of which at least one is wanted; equal needs of one plan are one object.

    `bit` numbers its `requires` (-1: none). `kids` is empty for a leaf, which asks for an amount (sum of sizes);
    for all others `count` is a number of vertices or slots. `names` are the types asked for here, looking through
    slots.
    """

    __slots__ = ("bit", "count", "is_slot", "kids", "maximum", "names", "type")

    def __init__(self, type_: str, count: int, kids: tuple[Need, ...], bit: int, maximum: int | None) -> None:
        self.type, self.count, self.kids, self.bit, self.maximum = type_, count, kids, bit, maximum
        self.is_slot = type_ == SLOT
        self.names: frozenset[str]
        if not self.is_slot:
            self.names = frozenset((type_,))
        elif len(kids) == 1:
            self.names = kids[0].names
        else:
            self.names = frozenset().union(*[kid.names for kid in kids])


@dataclass(frozen=True, slots=True)
class Plan:
    """`alternatives` are lists of siblings of which any one will do.

    `least` is, per type, what every alternative needs at the very least; `zero` says that some count of the request is
    0 (which Fluxion refuses).
    """

    request: Request
    alternatives: tuple[tuple[Need, ...], ...]
    wishes: tuple[Wishes, ...]
    constraint: Constraint | None
    least: tuple[tuple[str, int], ...]
    zero: bool
    host: tuple[HostNeed, ...] = ()

    @property
    def by_shape_alone(self) -> bool:
        """Whether the answer depends on nothing but the folded containment graph."""
        return self.constraint is None and not self.wishes and not self.host


def make_plan(request: Request) -> Plan:
    """Plan a request. A list in which alternatives stand gives one list of needs for each way to choose."""
    made = _Planner()
    alternatives = made.siblings(request.resources, ())
    least: dict[str, int] | None = None
    for needs in alternatives:
        totals: dict[str, int] = {}
        for need in needs:
            _add_totals(need, 1, totals)
        if least is None:
            least = totals
        else:
            least = {kind: min(amount, totals.get(kind, 0)) for kind, amount in least.items()}
    return Plan(
        request=request,
        alternatives=tuple(alternatives),
        wishes=tuple(made.wishes),
        constraint=request.constraint,
        least=tuple([(kind, amount) for kind, amount in (least or {}).items() if amount]),
        zero=made.zero,
        host=request.host,
    )


class _Planner:
    def __init__(self) -> None:
        self.wishes: list[Wishes] = []
        self.zero = False
        self._needs: dict[tuple[object, ...], Need] = {}

    def siblings(self, wants: tuple[Want, ...], pushed: tuple[Requirement, ...]) -> list[tuple[Need, ...]]:
        """All ways to choose one of each list's alternatives, at every depth."""
        fixed: list[list[Need]] = []
        either: list[Need] = []
        single = True
        for want in wants:
            if want.count.min <= 0:
                self.zero = True
                continue
            ways = self._ways(want, pushed)
            if want.type == XOR_SLOT:
                either += ways
            else:
                fixed.append(ways)
                single = single and len(ways) == 1
        if either:
            fixed.append(either)
            single = single and len(either) == 1
        if single:
            return [tuple([ways[0] for ways in fixed])]
        return list(islice(product(*fixed), MAX_ALTERNATIVES))

    def _ways(self, want: Want, pushed: tuple[Requirement, ...]) -> list[Need]:
        kind = want.type
        requires = pushed + want.requires if pushed else want.requires
        bit = -1
        if kind in (SLOT, XOR_SLOT):
            # A slot is no vertex: what is required of it is required of the vertices directly in it.
            kind, pushed = SLOT, requires
        else:
            pushed = ()
            if requires:
                bit = self._bit(kind, requires)
        rows = self.siblings(want.children, pushed) if want.children else [()]
        return [self._need(kind, want.count.min, kids, bit, want.count.max) for kids in rows]

    def _need(self, kind: str, count: int, kids: tuple[Need, ...], bit: int, maximum: int | None) -> Need:
        key = (kind, count, kids, bit, maximum)
        known = self._needs.get(key)
        if known is None:
            known = self._needs[key] = Need(kind, count, kids, bit, maximum)
        return known

    def _bit(self, kind: str, requires: tuple[Requirement, ...]) -> int:
        wish = (kind, requires)
        if wish not in self.wishes:
            self.wishes.append(wish)
        return self.wishes.index(wish)


def _add_totals(need: Need, times: int, totals: dict[str, int]) -> None:
    times *= need.count
    if not need.is_slot:
        # Only for a leaf it is an amount: a vertex that others hang below may have any size.
        totals[need.type] = totals.get(need.type, 0) + (0 if need.kids else times)
    for kid in need.kids:
        _add_totals(kid, times, totals)
