"""Flux's resource set R (RFC 20), folded without listing its ranks.

As a cluster, R is cluster > node > (core, gpu, ...). Ranks, host names and properties stay ranges throughout:
one entry of R_lite may stand for 100,000 nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rainbow.errors import InvalidGraph, InvalidInput
from rainbow.ranges.hostlist import Hostlist, HostRange
from rainbow.ranges.idset import IdSet, Range
from rainbow.resources.graph.identity import Identity, Run, cut
from rainbow.resources.graph.shape import Shape, make
from rainbow.resources.readers.jgf import clip, well_formed

MAX_RANKS = 2**24
"""More nodes than this are a mistake or an attack."""

MAX_UNNAMED = 100_000
"""Ranks that are kept one by one: named in their entries, or not at all."""

MAX_STEPS = 2_000_000
"""Of the pass over overlapping entries or properties."""

Kinds = tuple[tuple[str, int], ...]
"""What one node holds: sorted (type, how many)."""


def is_rset(document: Mapping[str, Any]) -> bool:
    """Whether a document has the form of R (RFC 20)."""
    return "execution" in document


def read_rset(document: Mapping[str, Any]) -> tuple[Shape, Identity]:
    """Fold ``execution.R_lite``.

    `nodelist`, where given, names the ranks in rising order over all entries (RFC 20); older writers put a
    `node` into each entry instead, and some leave names out altogether.

    Raises:
        InvalidGraph: version is not 1, R_lite or nodelist is no list, an idset or hostlist is malformed.
    """
    version = document.get("version")
    if type(version) is not int or version != 1:
        raise InvalidGraph(f"R: version is {clip(version)}; only 1 is known (RFC 20)")
    execution = document["execution"]
    if not isinstance(execution, Mapping):
        raise InvalidGraph("R: execution is not an object")
    entries = execution.get("R_lite")
    if not isinstance(entries, list):
        raise InvalidGraph(f"R: execution.R_lite is {clip(entries)}; give a list")
    classes = _classes(entries)
    ranks = IdSet(r for ids in classes.values() for r in ids.ranges)
    if len(ranks) > MAX_RANKS:
        raise InvalidGraph(f"R: {len(ranks)} ranks; at most {MAX_RANKS} are taken")
    hosts = _hosts(execution.get("nodelist"), entries, ranks)
    properties = ranks_by_property(execution.get("properties"))

    by_shape: dict[Shape, list[Range]] = {}
    for kinds, ids in classes.items():
        by_shape.setdefault(make("node", 1, "", _held(kinds)), []).extend(ids.ranges)
    nodes = sorted(by_shape, key=lambda shape: shape.digest)
    order = _parts(nodes, [IdSet(by_shape[node]) for node in nodes], properties)
    return _assemble(order, ranks, hosts, properties)


def _held(kinds: Kinds) -> tuple[tuple[Shape, int], ...]:
    return tuple(sorted(((make(name), count) for name, count in kinds if count), key=lambda item: item[0].digest))


def _idset(text: object, where: str) -> IdSet:
    if type(text) is int:
        text = str(text)
    if type(text) is not str:
        raise InvalidGraph(f"R: {where} is {clip(text)}; give an idset such as 0-3")
    try:
        return IdSet.parse(text)
    except InvalidInput as exc:
        raise InvalidGraph(f"R: {where}: {exc}") from None


def _classes(entries: list[Any]) -> dict[Kinds, IdSet]:
    """Ranks by what they hold. A rank that occurs in several entries holds what all of them say."""
    rows: list[tuple[IdSet, dict[str, IdSet]]] = []
    for entry in entries:
        if not isinstance(entry, Mapping):
            raise InvalidGraph(f"R: an entry of R_lite is {clip(entry)}; give an object")
        ranks = _idset(entry.get("rank"), "rank")
        children = entry.get("children") or {}
        if not isinstance(children, Mapping):
            raise InvalidGraph(f"R: children of rank {str(ranks)[:60]} is {clip(children)}; give an object")
        held = {
            well_formed(str(name), "R: children"): _idset(ids, f"{name} of rank {str(ranks)[:60]}")
            for name, ids in children.items()
        }
        rows.append((ranks, held))
    classes: dict[Kinds, list[Range]] = {}
    known: dict[tuple[int, ...], Kinds] = {}
    steps = 0
    for within, stretch in _stretches([ranks for ranks, _ in rows]):
        kinds = known.get(within)
        if kinds is None:
            held = {}
            for at in within:
                steps += len(rows[at][1])
                for name, ids in rows[at][1].items():
                    held[name] = held[name] | ids if name in held else ids
            if steps > MAX_STEPS:
                raise InvalidGraph("R: too many entries overlap in too many places")
            kinds = known[within] = tuple(sorted((name, len(ids)) for name, ids in held.items()))
        classes.setdefault(kinds, []).append(stretch)
    return {kinds: IdSet(stretches) for kinds, stretches in classes.items()}


def _stretches(sets: Sequence[IdSet]) -> Iterator[tuple[tuple[int, ...], Range]]:
    """Cut the union of `sets` into stretches of ids that are in the same of them, in rising order.

    Each comes with the numbers of these sets. One pass over the ends of all ranges.

    Raises:
        InvalidGraph: so many sets overlap in so many places that this would take long.
    """
    ends = sorted(
        (place, number, starts)
        for number, ids in enumerate(sets)
        for start, stop in ids.ranges
        for place, starts in ((start, True), (stop, False))
    )
    inside: set[int] = set()
    within: tuple[int, ...] = ()
    before = left = 0
    for place, number, starts in ends:
        if place > before:
            if inside:
                if not within:
                    left += len(inside)
                    if left > MAX_STEPS:
                        raise InvalidGraph("R: too many entries or properties overlap in too many places")
                    within = tuple(sorted(inside))
                yield within, (before, place)
            before = place
        inside.add(number) if starts else inside.discard(number)
        within = ()


def _hosts(nodelist: object, entries: list[Any], ranks: IdSet) -> Hostlist | None:
    """One name per rank, in rising order of ranks; None when R has no names."""
    if nodelist is not None:
        if not isinstance(nodelist, list) or not all(type(item) is str for item in nodelist):
            raise InvalidGraph(f"R: nodelist is {clip(nodelist)}; give a list of hostlists")
        try:
            hosts = Hostlist.parse(nodelist)
        except InvalidInput as exc:
            raise InvalidGraph(f"R: nodelist: {exc}") from None
        if not hosts:
            return None
        if len(hosts) < len(ranks):
            # Seen in real files: what has no name has none, rather than somebody else's.
            missing = len(ranks) - len(hosts)
            if missing > MAX_UNNAMED:
                raise InvalidGraph(f"R: nodelist has {len(hosts)} names for {len(ranks)} ranks; name all of them")
            return Hostlist([*hosts.pieces, *(HostRange("", -1, -1) for _ in range(missing))])
        return hosts
    named: list[tuple[int, HostRange]] = []
    for entry in entries:
        name = entry.get("node")
        if type(name) is str and name:
            try:
                piece = Hostlist.parse(name).pieces[:1]
            except InvalidInput as exc:
                raise InvalidGraph(f"R: node: {exc}") from None
            of_it = _idset(entry.get("rank"), "rank")
            if len(named) + len(of_it) > MAX_UNNAMED:
                raise InvalidGraph(f"R: more than {MAX_UNNAMED} ranks are named in their entries; give a nodelist")
            named += ((rank, piece[0]) for rank in of_it if piece)
    if not named:
        return None
    if len(ranks) > MAX_UNNAMED:
        raise InvalidGraph(f"R: {len(ranks)} ranks, some of them named in their entries; give a nodelist")
    by_rank = dict(named)
    return Hostlist(by_rank.get(rank, HostRange("", -1, -1)) for rank in ranks)


def ranks_by_property(given: object) -> dict[str, IdSet]:
    """Ranks by property. ``name@type`` stands under its full text: constraints compare whole texts."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidGraph(f"R: properties is {clip(given)}; give an object of idsets")
    return {
        well_formed(str(name), "R: properties"): _idset(ids, f"property {clip(name)}") for name, ids in given.items()
    }


_Part = tuple[Shape, IdSet, tuple[str, ...]]
"""A kind of node, some ranks that are of it, and the properties that all of these have."""


def _parts(nodes: Sequence[Shape], ranks: Sequence[IdSet], properties: dict[str, IdSet]) -> list[_Part]:
    """Cut the ranks of each kind of node so that all ranks of a part have the same properties.

    In a fixed order: by kind; what has the first property comes first, and so on.
    """
    names = list(properties)
    parts: dict[tuple[int, tuple[int, ...]], list[Range]] = {}
    for within, stretch in _stretches([*properties.values(), *ranks]):
        if within[-1] >= len(names):
            parts.setdefault((within[-1] - len(names), within[:-1]), []).append(stretch)
    order = sorted(parts, key=lambda of: (of[0], (*of[1], len(names))))
    return [(nodes[kind], IdSet(parts[kind, of]), tuple(names[at] for at in of)) for kind, of in order]


def _assemble(
    order: list[_Part], ranks: IdSet, hosts: Hostlist | None, properties: dict[str, IdSet]
) -> tuple[Shape, Identity]:
    counts: dict[Shape, int] = {}
    runs: list[Run] = []
    spans: list[Range] = []
    found: dict[str, list[Range]] = {name: [] for name in properties}
    ordinal = 0
    for node, part, names in order:
        counts[node] = counts.get(node, 0) + len(part)
        at = ordinal
        for start, stop in part.ranges:
            runs.append((start, stop - start, at))
            at += stop - start
        if hosts is not None:
            spans += ((ranks.position(a), ranks.position(a) + b - a) for a, b in part.ranges)
        for name in names:
            found[name].append((ordinal, at))
        ordinal = at
    root = make("cluster", 1, "", tuple(counts.items()), outer=bool(counts) or None)
    identity = Identity(
        ordinal,
        Hostlist(cut(hosts, spans)) if hosts is not None else None,
        runs,
        {name: IdSet(rows) for name, rows in found.items()},
    )
    return root, identity
