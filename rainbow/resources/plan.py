"""A request made ready for matching: zero counts dropped, alternatives written out, requirements numbered."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

from rainbow.jobspec.request import SLOT, XOR_SLOT, Constraint, Request, Requirement, Want

MAX_ALTERNATIVES = 256
"""Combinations of `xor_slot` alternatives that are tried; a jobspec with more is matched on the first of them."""

Wishes = tuple[str, tuple[Requirement, ...]]


@dataclass(frozen=True, slots=True)
class Need:
    """A `Want` of which at least one is wanted. `bit` numbers its `requires` (-1: none); `kids` is empty for a
    leaf, which asks for an amount (sum of sizes); for all others `count` is a number of vertices or slots."""

    type: str
    count: int
    kids: tuple[Need, ...]
    bit: int
    maximum: int | None

    @property
    def is_slot(self) -> bool:
        return self.type == SLOT

    def names(self) -> frozenset[str]:
        """The types asked for here, looking through slots."""
        if not self.is_slot:
            return frozenset((self.type,))
        return frozenset().union(*(kid.names() for kid in self.kids))


@dataclass(frozen=True, slots=True)
class Plan:
    """`alternatives` are lists of siblings of which any one will do; `least` is, per type, what every alternative
    needs at the very least; `zero` says that some count of the request is 0 (which Fluxion refuses)."""

    request: Request
    alternatives: tuple[tuple[Need, ...], ...]
    wishes: tuple[Wishes, ...]
    constraint: Constraint | None
    least: tuple[tuple[str, int], ...]
    zero: bool

    @property
    def by_shape_alone(self) -> bool:
        """Whether the answer depends on nothing but the folded containment graph."""
        return self.constraint is None and not self.wishes


def make_plan(request: Request) -> Plan:
    wishes: list[Wishes] = []
    zero = False

    def bit_of(kind: str, requires: tuple[Requirement, ...]) -> int:
        if not requires:
            return -1
        wish = (kind, requires)
        if wish not in wishes:
            wishes.append(wish)
        return wishes.index(wish)

    def siblings(wants: tuple[Want, ...], pushed: tuple[Requirement, ...]) -> list[tuple[Need, ...]]:
        """All ways to choose one of each list's alternatives, at every depth."""
        nonlocal zero
        fixed: list[list[Need]] = []
        either: list[Need] = []
        for want in wants:
            if want.count.min <= 0:
                zero = True
                continue
            ways = one(want, pushed)
            if want.type == XOR_SLOT:
                either += ways
            else:
                fixed.append(ways)
        if either:
            fixed.append(either)
        chosen = []
        for combination in product(*fixed):
            chosen.append(combination)
            if len(chosen) >= MAX_ALTERNATIVES:
                break
        return chosen

    def one(want: Want, pushed: tuple[Requirement, ...]) -> list[Need]:
        slot = want.type in (SLOT, XOR_SLOT)
        requires = pushed + want.requires
        # A slot is no vertex: what is required of it is required of the vertices directly in it.
        bit = -1 if slot else bit_of(want.type, requires)
        kind = SLOT if slot else want.type
        ways = siblings(want.children, requires if slot else ())
        return [Need(kind, want.count.min, kids, bit, want.count.max) for kids in ways]

    alternatives = tuple(siblings(request.resources, ()))
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
        alternatives=alternatives,
        wishes=tuple(wishes),
        constraint=request.constraint,
        least=tuple((kind, amount) for kind, amount in (least or {}).items() if amount),
        zero=zero,
    )


def _add_totals(need: Need, times: int, totals: dict[str, int]) -> None:
    times *= need.count
    if not need.is_slot:
        # With children one vertex each (at least size 0 .. so only the leaf's amount is certain).
        totals[need.type] = totals.get(need.type, 0) + (times if not need.kids else 0)
    for kid in need.kids:
        _add_totals(kid, times, totals)


def without_alternatives(want: Want) -> Want:
    """`want` with slots in place of alternatives, for texts."""
    kind = SLOT if want.type == XOR_SLOT else want.type
    return replace(want, type=kind, children=tuple(map(without_alternatives, want.children)))
