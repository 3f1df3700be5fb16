"""The folded summary of one cluster: what the store holds and what matching works on.

Shapes with counts; beside them, who the execution targets are (names, ranks, properties), where each vertex of
the registered document went (so that subsystems can be linked later), and the subsystems.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import msgpack

from rainbow.errors import InvalidGraph, InvalidInput
from rainbow.jobspec.request import Constraint
from rainbow.ranges.hostlist import Hostlist, HostRange
from rainbow.ranges.idset import IdSet
from rainbow.resources.graph.identity import Identity
from rainbow.resources.graph.shape import Shape, describe, make, shapes_below
from rainbow.resources.graph.vertex_keys import VertexKeys
from rainbow.resources.readers.subsystem import Holders, Subsystem
from rainbow.resources.readers.subsystem_reader import read_subsystem

VERSION = 1


class Summary:
    """One cluster, folded. Immutable: `with_subsystem` and `without_subsystem` return another one.

    `warnings` are about the documents it was read from, and are not part of what is stored or compared.
    """

    __slots__ = ("_bytes", "_digest", "dominant", "identity", "keys", "name", "root", "subsystem", "views", "warnings")

    def __init__(
        self,
        root: Shape,
        identity: Identity,
        keys: VertexKeys | None = None,
        *,
        subsystems: Mapping[str, Subsystem] | None = None,
        name: str | None = None,
        dominant: str = "containment",
        warnings: tuple[str, ...] = (),
    ) -> None:
        """`name` is what the document itself calls the cluster; `keys` is None for R, which has no keys."""
        self.root, self.identity, self.keys = root, identity, keys
        self.subsystem: dict[str, Subsystem] = dict(subsystems or {})
        self.name, self.dominant, self.warnings = name, dominant, warnings
        self.views: dict[Constraint, Shape] = {}
        """What is left of the graph under constraints asked for lately; kept by who asks."""
        self._bytes: bytes | None = None
        self._digest: str | None = None

    # -- what it holds ---------------------------------------------------------------------------

    @property
    def totals(self) -> dict[str, int]:
        """Sum of sizes by type. Not to be changed."""
        return self.root.totals

    @property
    def nodes(self) -> int:
        return self.root.counts.get("node", 0)

    @property
    def cores(self) -> int:
        return self.root.totals.get("core", 0)

    @property
    def gpus(self) -> int:
        return self.root.totals.get("gpu", 0)

    @property
    def subsystems(self) -> tuple[str, ...]:
        return tuple(sorted(self.subsystem))

    @property
    def shape_key(self) -> str:
        """Equal for clusters whose containment graphs fold equal, in any process."""
        return self.root.digest.hex()

    @property
    def digest(self) -> str:
        """Equal for summaries with equal content, names and subsystems included."""
        if self._digest is None:
            self._digest = blake2b(self.to_bytes(), digest_size=16).hexdigest()
        return self._digest

    def describe(self) -> str:
        """``cluster(4 x node(2 x socket(18 x core), gpu)) with io, spack``."""
        text = describe(self.root)
        return f"{text} with {', '.join(self.subsystems)}" if self.subsystem else text

    def __repr__(self) -> str:
        return f"<Summary {self.describe()}>"

    # -- subsystems ------------------------------------------------------------------------------

    def locate(self, key: str) -> Holders | None:
        """The containment vertex that a subsystem calls `key`: its key in the document.

        In R, a host name or else a rank. None when there is none.
        """
        if self.keys is None:
            return self._locate_in_rset(key)
        position = self.keys.position(key)
        if position is None:
            return None
        return self.at(position)

    def at(self, position: int) -> Holders:
        """The vertex at a position of the numbering."""
        shape, ordinal, left = self.root, 0, position
        while left:
            left -= 1
            ordinal += shape.is_target
            for child, count in shape.children:
                size = child.vertices * count
                if left < size:
                    skipped, left = divmod(left, child.vertices)
                    ordinal += skipped * child.targets
                    shape = child
                    break
                left -= size
                ordinal += child.targets * count
            else:
                raise IndexError(position)
        if shape.is_target:
            return Holders(targets=IdSet([(ordinal, ordinal + 1)]))
        return Holders(others=IdSet([(position, position + 1)]))

    def _locate_in_rset(self, key: str) -> Holders | None:
        found = IdSet()
        try:
            hosts = Hostlist.parse(key)
            # One name: a list of many is no vertex.
            found = self.identity.with_hosts(hosts) if len(hosts) == 1 else found
            if not found and key.isascii() and key.isdigit():
                found = self.identity.with_ranks(IdSet.parse(key))
        except InvalidInput:
            return None
        return Holders(targets=found) if found else None

    def with_subsystem(self, name: str, source: Any) -> Summary:
        """A copy with subsystem `name`, in place of an older one of that name.

        Args:
            name: The name that requirements use.
            source: The document, in any form that `read_graph` takes.

        Raises:
            InvalidGraph: Not a subsystem document, or an edge to or from nothing.
        """
        made, warnings = read_subsystem(source).link(self.locate, IdSet.span(self.identity.count))
        more = tuple(f"{name}: {warning}" for warning in warnings)
        return self._copy({**self.subsystem, name: made}, self.warnings + more)

    def without_subsystem(self, name: str) -> Summary:
        """A copy without subsystem `name`; itself when it has none of that name."""
        if name not in self.subsystem:
            return self
        return self._copy({k: v for k, v in self.subsystem.items() if k != name}, self.warnings)

    def named(self, name: str | None) -> Summary:
        """The same under another name; itself when it has that name."""
        if name == self.name:
            return self
        made = self._copy(self.subsystem, self.warnings)
        made.name = name
        return made

    def with_properties(self, ranks: Mapping[str, IdSet]) -> Summary:
        """The same, where nodes of these ranks have these properties too; itself when they all have them."""
        own = self.identity
        more = {name: own.with_ranks(wanted) - own.with_property(name) for name, wanted in ranks.items()}
        more = {name: own.with_property(name) | ids for name, ids in more.items() if ids}
        if not more:
            return self
        made = self._copy(self.subsystem, self.warnings)
        made.identity = Identity(own.count, own.hosts, own.ranks, {**own.properties, **more})
        return made

    def _copy(self, subsystems: dict[str, Subsystem], warnings: tuple[str, ...]) -> Summary:
        return Summary(
            self.root,
            self.identity,
            self.keys,
            subsystems=subsystems,
            name=self.name,
            dominant=self.dominant,
            warnings=warnings,
        )

    # -- stored form -----------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """MessagePack, with a version."""
        if self._bytes is None:
            order = shapes_below(self.root)
            number = {shape: at for at, shape in enumerate(order)}
            identity = self.identity
            document = {
                "v": VERSION,
                "shapes": [
                    [s.type, s.size, s.unit, s.outer, [x for c, n in s.children for x in (number[c], n)]] for s in order
                ],
                "hosts": None
                if identity.hosts is None
                else [[p.prefix, p.start, p.stop, p.width, p.suffix] for p in identity.hosts.pieces],
                "ranks": identity.ranks,
                "properties": {k: _flat(ids) for k, ids in sorted(identity.properties.items())},
                "keys": None if self.keys is None else self.keys.packed,
                "subsystems": {
                    name: [[_flat(who.targets), _flat(who.others), rows] for who, rows in found.groups]
                    for name, found in sorted(self.subsystem.items())
                },
                "name": self.name,
                "dominant": self.dominant,
            }
            packed: bytes = msgpack.packb(document)
            self._bytes = packed
        return self._bytes

    @classmethod
    def from_bytes(cls, data: bytes) -> Summary:
        """The inverse of `to_bytes`.

        Raises:
            InvalidGraph: damaged, or written by a later version than this one reads.
        """
        try:
            document = msgpack.unpackb(data)
            version = document["v"]
            made = cls._unpacked(document) if version == VERSION else None
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, InvalidInput) as exc:
            raise InvalidGraph(f"a damaged summary: {exc}") from exc
        if made is None:
            raise InvalidGraph(f"a summary of version {version!r}; this rainbow reads {VERSION}")
        return made

    @classmethod
    def _unpacked(cls, document: Any) -> Summary:
        shapes: list[Shape] = []
        for kind, size, unit, outer, row in document["shapes"]:
            children = tuple((shapes[row[i]], row[i + 1]) for i in range(0, len(row), 2))
            shapes.append(make(kind, size, unit, children, 0, outer))
        root = shapes[-1]
        hosts = document["hosts"]
        keys = document["keys"]
        identity = Identity(
            root.targets,
            None if hosts is None else Hostlist(HostRange(*piece) for piece in hosts),
            [(rank, count, ordinal) for rank, count, ordinal in document["ranks"]],
            {name: _unflat(row) for name, row in document["properties"].items()},
        )
        subsystems = {
            name: Subsystem([(Holders(_unflat(a), _unflat(b)), rows) for a, b, rows in groups])
            for name, groups in document["subsystems"].items()
        }
        return cls(
            root,
            identity,
            None if keys is None else VertexKeys(keys),
            subsystems=subsystems,
            name=document["name"],
            dominant=document["dominant"],
        )


def _flat(ids: IdSet) -> list[int]:
    return [x for r in ids.ranges for x in r]


def _unflat(row: list[int]) -> IdSet:
    return IdSet((row[i], row[i + 1]) for i in range(0, len(row), 2))
