"""RFC 31 constraints, evaluated to the set of execution targets they leave.

Edge cases as in the RFC: an empty `and` or `or` holds, an empty `not` does not, `not` negates the conjunction
of its values. Properties are compared as whole texts; a leading ``^`` negates.
"""

from __future__ import annotations

from rainbow.jobspec.request import Constraint
from rainbow.ranges.hostlist import Hostlist
from rainbow.ranges.idset import IdSet
from rainbow.resources.graph.identity import Identity


def kept(constraint: Constraint, identity: Identity) -> IdSet:
    """Ordinals of the targets for which `constraint` holds.

    Raises:
        InvalidInput: a hostlist or idset in it is malformed (jobspec readers have refused those before).
    """
    everything = IdSet.span(identity.count)
    values = constraint.values
    match constraint.operator:
        case "and":
            return _all(values, identity, everything)
        case "or":
            if not values:
                return everything
            return IdSet(r for value in values for r in kept(value, identity).ranges)
        case "not":
            return everything - _all(values, identity, everything)
        case "properties":
            left = everything
            for name in values:
                if name.startswith("^"):
                    left -= identity.with_property(name[1:])
                else:
                    left &= identity.with_property(name)
            return left
        case "hostlist":
            return identity.with_hosts(Hostlist.parse(values))
        case "ranks":
            return identity.with_ranks(IdSet(r for value in values for r in IdSet.parse(str(value)).ranges))


def _all(values: tuple[Constraint, ...], identity: Identity, everything: IdSet) -> IdSet:
    left = everything
    for value in values:
        left &= kept(value, identity)
    return left


def text(constraint: Constraint) -> str:
    """The constraint for people: ``hostlist(a,b) and not(properties(ssd))``."""
    inner = [text(value) if isinstance(value, Constraint) else str(value) for value in constraint.values]
    if constraint.operator in ("and", "or"):
        return f" {constraint.operator} ".join(inner) or constraint.operator
    return f"{constraint.operator}({', '.join(inner)})"
