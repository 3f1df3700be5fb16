"""`constraint`: prioritised steps that filter, calculate, sort and select, over numbers of clusters and job.

Option `priorities` is a list of ``{priority, steps: [{STEP: text}, ...]}``, also as YAML text inside the YAML (as
rainbow v1 wrote it). Priorities are tried in order of their number until one leaves a cluster. Steps:

    filter            a formula; clusters for which it does not hold are dropped
    calc              NAME=FORMULA; NAME can be used in what follows
    sort_ascending    a name or formula; the smallest comes first
    sort_descending   the largest comes first
    select            first, last or random; without it the first is taken

Formulas know the cluster's state (`rainbow state`), the job's ``attributes.parameter``, and `nodes_total`,
`cores_total`, `gpus_total`, `nodes_free`, `cores_free`, `gpus_free` less what is reserved. A name without a value
drops that cluster, with a reason.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rainbow.errors import InvalidInput
from rainbow.formulas import Formula, FormulaError, formula
from rainbow_workers.selection.base import Choice, Fleet, JobView
from rainbow_workers.selection.numbers import numbers

_MAX_STEPS = 100
_MAX_TEXT = 65_536
_MAX_DEPTH = 8
#: Seconds that one decision may take: other jobs wait for it.
BUDGET_S = 0.5


@dataclass(slots=True)
class _Candidate:
    name: str
    values: dict[str, Any]


class _Dropped(dict[str, str]):
    """Why clusters were ruled out, by name."""


_Step = Callable[[list[_Candidate], _Dropped, random.Random], list[_Candidate]]


class Constraint:
    """Steps that filter, calculate, sort and select, over numbers of clusters and job."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        unknown = sorted(set(options) - {"priorities"})
        if unknown:
            raise InvalidInput(f"selection constraint has no option {unknown[0]!r}: it takes priorities")
        self._priorities = [_steps(item) for item in _ordered(_listed(options.get("priorities")))]

    def choose(self, candidates: Sequence[str], fleet: Fleet, job: JobView, rng: random.Random) -> Choice:
        dropped = _Dropped()
        end = time.monotonic() + BUDGET_S
        for number, steps in enumerate(self._priorities, start=1):
            dropped.clear()
            left = [_Candidate(name, numbers(name, fleet, job)) for name in candidates]
            for step in steps:
                if time.monotonic() > end:
                    why = f"the priorities take more than {BUDGET_S:g} s for {len(candidates)} clusters"
                    return Choice(None, {}, dict.fromkeys(candidates[:1], why))
                left = step(left, dropped, rng)
                if not left:
                    break
            if left:
                winner = left[0]
                given = fleet.values(winner.name)
                worked_out = {k: v for k, v in winner.values.items() if k.startswith("=")}
                terms = {"priority": number, **{k[1:]: v for k, v in worked_out.items()}}
                return Choice(winner.name, {**terms, "state": dict(given)} if given else terms, dict(dropped))
        return Choice(None, {}, dict(dropped))


# -- reading the options ------------------------------------------------------------------------------------------


def _listed(given: Any) -> list[Any]:
    if isinstance(given, str):
        from rainbow.jobspec.dialects.yaml import read_yaml

        if len(given) > _MAX_TEXT:
            raise InvalidInput(f"priorities have {len(given)} characters: at most {_MAX_TEXT} are allowed")
        try:
            given = read_yaml(given, _MAX_DEPTH)
        except InvalidInput as exc:
            raise InvalidInput(f"priorities are not YAML: {exc.message}") from None
    if not isinstance(given, list) or not given:
        raise InvalidInput("selection constraint needs priorities: a list of {priority, steps}")
    if len(given) > _MAX_STEPS:
        raise InvalidInput(f"{len(given)} priorities are too many: at most {_MAX_STEPS} are allowed")
    return given


def _ordered(items: list[Any]) -> list[Mapping[str, Any]]:
    for item in items:
        number = item.get("priority", 0) if isinstance(item, dict) else None
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise InvalidInput("each of the priorities is a mapping with a number `priority` and a list `steps`")
    return sorted(items, key=lambda item: float(item.get("priority", 0)))


def _steps(item: Mapping[str, Any]) -> list[_Step]:
    unknown = sorted(str(k) for k in set(item) - {"priority", "steps"})
    steps = item.get("steps")
    if unknown or not isinstance(steps, list) or not steps:
        raise InvalidInput(f"priority {item.get('priority')}: give steps, a list of {{STEP: text}}, and nothing else")
    if len(steps) > _MAX_STEPS:
        raise InvalidInput(f"priority {item.get('priority')} has {len(steps)} steps: at most {_MAX_STEPS} are allowed")
    return [_step(step) for step in steps]


def _step(step: Any) -> _Step:
    if not isinstance(step, dict) or len(step) != 1:
        raise InvalidInput("a step is one of filter, calc, sort_ascending, sort_descending, select, with its text")
    [(kind, text)] = step.items()
    make = _STEPS.get(kind)
    if make is None:
        raise InvalidInput(f"no step {str(kind)[:40]!r}: use {', '.join(_STEPS)}")
    if not isinstance(text, str | int | float | bool):
        raise InvalidInput(f"step {kind} needs text")
    return make(str(text))


# -- the steps ------------------------------------------------------------------------------------------------------


def _filter(text: str) -> _Step:
    condition = formula(text)

    def run(left: list[_Candidate], dropped: _Dropped, rng: random.Random) -> list[_Candidate]:
        return [c for c in left if _holds(condition, c, dropped)]

    return run


def _holds(condition: Formula, candidate: _Candidate, dropped: _Dropped) -> bool:
    try:
        if condition.holds(candidate.values):
            return True
        dropped[candidate.name] = f"filter {condition.text!r} does not hold"
    except FormulaError as exc:
        dropped[candidate.name] = exc.message
    return False


def _calc(text: str) -> _Step:
    name, equals, expression = text.partition("=")
    name = name.strip()
    if not equals or not name.isidentifier() or expression.startswith("="):
        raise InvalidInput(f"calc is NAME=FORMULA, not {text[:80]!r}")
    worked = formula(expression)

    def run(left: list[_Candidate], dropped: _Dropped, rng: random.Random) -> list[_Candidate]:
        kept = []
        for candidate in left:
            try:
                result = worked.evaluate(candidate.values)
            except FormulaError as exc:
                dropped[candidate.name] = exc.message
                continue
            # Under its name for what follows, and marked for the terms that are shown.
            candidate.values[name] = candidate.values[f"={name}"] = result
            kept.append(candidate)
        return kept

    return run


def _sort(text: str, *, descending: bool) -> _Step:
    key = formula(text)

    def run(left: list[_Candidate], dropped: _Dropped, rng: random.Random) -> list[_Candidate]:
        keyed = []
        for candidate in left:
            try:
                keyed.append((key.number(candidate.values), candidate))
            except FormulaError as exc:
                dropped[candidate.name] = exc.message
        keyed.sort(key=lambda pair: pair[0], reverse=descending)
        return [candidate for _, candidate in keyed]

    return run


def _select(text: str) -> _Step:
    how = text.strip()
    if how not in ("first", "last", "random"):
        raise InvalidInput(f"select is first, last or random, not {how[:40]!r}")

    def run(left: list[_Candidate], dropped: _Dropped, rng: random.Random) -> list[_Candidate]:
        if not left:
            return left
        return [left[0] if how == "first" else left[-1] if how == "last" else rng.choice(left)]

    return run


_STEPS: dict[str, Callable[[str], _Step]] = {
    "filter": _filter,
    "calc": _calc,
    "sort_ascending": lambda text: _sort(text, descending=False),
    "sort_descending": lambda text: _sort(text, descending=True),
    "select": _select,
}
