"""Which nodes of a cluster meet what an image needs of them, by subsystems and node properties.

A node says an attribute ``mpi.version`` in any of these ways:

* a vertex of subsystem ``mpi`` that it is linked to has the field ``version`` (one of ``hardware`` the field
  ``gpu.driver.version`` for ``hardware.gpu.driver.version``);
* a vertex of any subsystem has the field ``mpi.version``, or the type ``mpi.version=4.1.2`` (as compspec writes it);
* for ``spack.ior``: a vertex of subsystem ``spack`` has the name ``ior``, and its version is the value. A subsystem
  ``ior`` of its own says ``ior.version``;
* a property of the node is ``mpi.version=4.1.2``, or ``mpi.version`` alone, which says ``true``.

A vertex that says several of the attributes asked for counts only if all of those are as needed: an OpenMPI 3 beside an
MPICH 4 is no OpenMPI 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rainbow.jobspec.request import HostNeed
from rainbow.ranges.idset import EMPTY, IdSet
from rainbow.resources.compatibility import Test, compiled, words_in
from rainbow.resources.matching.answer import Unmet
from rainbow.resources.readers.subsystem import Holders
from rainbow.resources.readers.summary import Summary

_SHOWN = 4
"""Values that a reason names."""
_LONGEST_VALUE = 60
_LISTS = (".features", ".flags")


def test_of(need: HostNeed) -> Test:
    """The test of a value of this need's attribute."""
    return words_in(need.value) if need.attribute.endswith(_LISTS) else compiled(need.value)


def said(name: str, row: Mapping[str, str], attribute: str) -> str | None:
    """What a vertex of subsystem `name` says of an attribute."""
    value = row.get(attribute)
    if value is not None:
        return value
    kind, equals, packed = row.get("type", "").partition("=")
    if equals and attribute in (kind, f"{name}.{kind}"):
        return packed
    if attribute.startswith(f"{name}."):
        rest = attribute[len(name) + 1 :]
        value = row.get(rest)
        if value is None and row.get("name") == rest:
            return row.get("version", "")
    return value


@dataclass(slots=True)
class Found:
    """Of one need: the nodes that meet it, those that have such a value at all (`alone`), who says which value."""

    need: HostNeed
    meets: IdSet
    alone: IdSet
    values: dict[str, IdSet]


def look(summary: Summary, needs: Sequence[HostNeed]) -> list[Found]:
    """Each need by itself, on one cluster."""
    everything = IdSet.span(summary.identity.count)
    tests = [test_of(need) for need in needs]
    good: list[list[IdSet]] = [[] for _ in needs]
    values: list[dict[str, IdSet]] = [{} for _ in needs]
    for nodes, told in _told(summary, needs, everything):
        holds = all(tests[at](value) for at, value in told.items())
        for at, value in told.items():
            values[at][value] = values[at].get(value, EMPTY) | nodes
            if holds:
                good[at].append(nodes)
    found = []
    for at, need in enumerate(needs):
        meets = _union(good[at])
        alone = _union(nodes for value, nodes in values[at].items() if tests[at](value))
        if need.if_known:
            silent = everything - _union(values[at].values())
            meets, alone = meets | silent, alone | silent
        found.append(Found(need, meets, alone, values[at]))
    return found


def _told(summary: Summary, needs: Sequence[HostNeed], everything: IdSet) -> Iterator[tuple[IdSet, dict[int, str]]]:
    """For each vertex and property that says something: the nodes, and the values by number of the need."""
    names = [need.attribute for need in needs]
    for subsystem, known in summary.subsystem.items():
        prefix = f"{subsystem}."
        own = {name.removeprefix(prefix) for name in names if name.startswith(prefix)}
        fields = own.union(names)
        for holders, rows in known.groups:
            nodes = _nodes(holders, everything)
            for row in rows if nodes else ():
                # Most vertices say nothing of it, and there may be thousands: each is looked at once for all needs.
                if fields.isdisjoint(row) and row.get("name") not in own and "=" not in row.get("type", ""):
                    continue
                told = {at: v for at, name in enumerate(names) if (v := said(subsystem, row, name)) is not None}
                if told:
                    yield nodes, told
    for label, nodes in summary.identity.properties.items():
        key, equals, value = label.partition("=")
        for at, name in enumerate(names):
            if key == name:
                yield nodes, {at: value if equals else "true"}


def _union(rows: Iterable[IdSet]) -> IdSet:
    return IdSet(r for nodes in rows for r in nodes.ranges)


def _nodes(holders: Holders, everything: IdSet) -> IdSet:
    """The nodes among holders; all of them where the root of the cluster is one."""
    return everything if 0 in holders.others else holders.targets


def kept(summary: Summary, needs: Sequence[HostNeed]) -> IdSet:
    """Ordinals of the nodes that meet all of `needs`."""
    left = IdSet.span(summary.identity.count)
    for found in look(summary, needs):
        left &= found.meets
    return left


def first_unmet(summary: Summary, needs: Sequence[HostNeed]) -> Unmet | None:
    """The first need that no node meets, else the first that none meets with the others; None when some meets all."""
    total = summary.identity.count
    rows = look(summary, needs)
    for found in rows:
        if not found.alone:
            return _unmet(found, f"none of {_nodes_text(total)} meet that")
    left = IdSet.span(total)
    for found in rows:
        left &= found.meets
        if not left:
            return _unmet(found, f"{len(found.alone)} of {_nodes_text(total)} meet that, none with the other needs")
    return None


def _unmet(found: Found, text: str) -> Unmet:
    return Unmet("compatibility", text + _have(found.values), f"needs {found.need}")


def shortage(summary: Summary, needs: Sequence[HostNeed]) -> Unmet:
    """What to say when some nodes meet all needs, but too few."""
    total = summary.identity.count
    rows = look(summary, needs)
    left = IdSet.span(total)
    for found in rows:
        left &= found.meets
    scarce = min(rows, key=lambda found: len(found.meets))
    what = "that" if len(rows) == 1 else f"all {len(rows)} needs of the image"
    text = f"{len(left)} of {_nodes_text(total)} meet {what}, too few for the job"
    return _unmet(scarce, text)


def _nodes_text(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _have(values: Mapping[str, IdSet]) -> str:
    """``; there is 4.0.3 on 3, 4.1.2 on 1``."""
    if not values:
        return "; nothing is said of it"
    most = sorted(values.items(), key=lambda item: (-len(item[1]), item[0]))
    shown = ", ".join(f"{value[:_LONGEST_VALUE] or '(empty)'} on {len(nodes)}" for value, nodes in most[:_SHOWN])
    return f"; there is {shown}" + (f" and {len(most) - _SHOWN} more" if len(most) > _SHOWN else "")


def score(summary: Summary, preferences: Iterable[tuple[HostNeed, float]]) -> float:
    """The share, by weight, of the preferences that some node meets: 0 to 1."""
    preferences = tuple(preferences)
    whole = sum(weight for _, weight in preferences)
    # Each by itself: a preference that fails takes no other with it.
    met = sum(weight for need, weight in preferences if look(summary, (need,))[0].meets)
    return met / whole if whole else 0.0
