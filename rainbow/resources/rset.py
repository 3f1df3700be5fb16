"""Flux's resource set R (RFC 20), folded without listing its ranks.

As a cluster, R is cluster > node > (core, gpu, ...). Ranks, host names and properties stay ranges throughout:
one entry of R_lite may stand for 100,000 nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rainbow.errors import InvalidGraph, InvalidInput
from rainbow.resources.hostlist import Hostlist, HostRange
from rainbow.resources.identity import Identity, Run, cut
from rainbow.resources.idset import IdSet
from rainbow.resources.jgf import clip, well_formed
from rainbow.resources.shape import Shape, make

Kinds = tuple[tuple[str, int], ...]
"""What one node holds: sorted (type, how many)."""


def is_rset(document: Mapping[str, Any]) -> bool:
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
    hosts = _hosts(execution.get("nodelist"), entries, ranks)
    properties = _properties(execution.get("properties"))

    order: list[tuple[Shape, IdSet]] = []
    by_shape: dict[Shape, list[IdSet]] = {}
    for kinds, ids in classes.items():
        node = make("node", 1, "", _held(kinds))
        by_shape.setdefault(node, []).append(ids)
    for node in sorted(by_shape, key=lambda shape: shape.digest):
        ids = IdSet(r for part in by_shape[node] for r in part.ranges)
        order += ((node, part) for part in _split(ids, properties))
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
    parts: list[tuple[IdSet, dict[str, IdSet]]] = []
    taken = IdSet()
    for entry in entries:
        if not isinstance(entry, Mapping):
            raise InvalidGraph(f"R: an entry of R_lite is {clip(entry)}; give an object")
        ranks = _idset(entry.get("rank"), "rank")
        children = entry.get("children") or {}
        if not isinstance(children, Mapping):
            raise InvalidGraph(f"R: children of rank {ranks} is {clip(children)}; give an object")
        held = {
            well_formed(str(name), "R: children"): _idset(ids, f"{name} of rank {ranks}")
            for name, ids in children.items()
        }
        if not taken.isdisjoint(ranks):
            ranks = _merge(parts, ranks, held)
        taken |= ranks
        if ranks:
            parts.append((ranks, held))
    classes: dict[Kinds, list[IdSet]] = {}
    for ranks, held in parts:
        kinds = tuple(sorted((name, len(ids)) for name, ids in held.items()))
        classes.setdefault(kinds, []).append(ranks)
    return {kinds: IdSet(r for ids in rows for r in ids.ranges) for kinds, rows in classes.items()}


def _merge(parts: list[tuple[IdSet, dict[str, IdSet]]], ranks: IdSet, held: dict[str, IdSet]) -> IdSet:
    """Add `held` to the ranks that are known already; returns those that are not."""
    for at, (known, before) in enumerate(list(parts)):
        both = known & ranks
        if both:
            union = {name: before.get(name, IdSet()) | held.get(name, IdSet()) for name in {**before, **held}}
            parts[at] = (both, union)
            rest = known - both
            if rest:
                parts.append((rest, before))
            ranks -= both
    return ranks


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
            return Hostlist([*hosts.pieces, *(HostRange("", -1, -1) for _ in range(missing))])
        return hosts
    named: list[tuple[int, HostRange]] = []
    for entry in entries:
        name = entry.get("node")
        if type(name) is str and name:
            piece = Hostlist.parse(name).pieces[:1]
            named += ((rank, piece[0]) for rank in _idset(entry.get("rank"), "rank") if piece)
    if not named:
        return None
    by_rank = dict(named)
    return Hostlist(by_rank.get(rank, HostRange("", -1, -1)) for rank in ranks)


def _properties(given: object) -> dict[str, IdSet]:
    """Ranks by property. ``name@type`` stands under its full text: constraints compare whole texts."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidGraph(f"R: properties is {clip(given)}; give an object of idsets")
    return {
        well_formed(str(name), "R: properties"): _idset(ids, f"property {clip(name)}") for name, ids in given.items()
    }


def _split(ids: IdSet, properties: dict[str, IdSet]) -> list[IdSet]:
    """Cut a set of ranks so that all ranks of a part have the same properties."""
    parts = [ids]
    for with_it in properties.values():
        parts = [piece for part in parts for piece in (part & with_it, part - with_it) if piece]
    return parts


def _assemble(
    order: list[tuple[Shape, IdSet]], ranks: IdSet, hosts: Hostlist | None, properties: dict[str, IdSet]
) -> tuple[Shape, Identity]:
    counts: dict[Shape, int] = {}
    runs: list[Run] = []
    pieces: list[HostRange] = []
    found: dict[str, list[tuple[int, int]]] = {name: [] for name in properties}
    ordinal = 0
    for node, part in order:
        counts[node] = counts.get(node, 0) + len(part)
        at = ordinal
        for start, stop in part.ranges:
            runs.append((start, stop - start, at))
            at += stop - start
        if hosts is not None:
            spans = ((ranks.position(a), ranks.position(a) + b - a) for a, b in part.ranges)
            pieces += cut(hosts, spans)
        for name, with_it in properties.items():
            if not part.isdisjoint(with_it):  # then all of the part has it: see _split
                found[name].append((ordinal, at))
        ordinal = at
    root = make("cluster", 1, "", tuple(counts.items()), outer=bool(counts) or None)
    identity = Identity(
        ordinal,
        Hostlist(pieces) if hosts is not None else None,
        runs,
        {name: IdSet(rows) for name, rows in found.items()},
    )
    return root, identity
