"""Formulas over numbers and text: compiled from a short list of syntax, with bounds, and without `eval`.

Numbers are floats (as in rainbow v1), so that no power or product can grow without bound. Whatever goes
wrong is a FormulaError: a missing name, text where a number belongs, division by zero, a result that is no number.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from rainbow.errors import InvalidInput

MAX_LENGTH = 1000
MAX_NODES = 200
MAX_DEPTH = 30

Value = float | str | bool
_Eval = Callable[[Mapping[str, Any]], Value]


class FormulaError(InvalidInput):
    """A formula that cannot be read, or cannot be worked out for these values."""

    code = "formula"


class MissingName(FormulaError):
    """A name in the formula has no value."""

    code = "formula-name"


class Formula:
    """A formula, read once.

    Syntax: numbers, text, True and False, names (also ``a.b``), ``+ - * / // % **``, comparisons (chained too), ``and
    or not``, parentheses, min, max, abs, ceil, floor, round.

    >>> Formula("cost_per_node_hour * max(1, hours)").evaluate({"cost_per_node_hour": 3, "hours": 2})
    6.0
    """

    __slots__ = ("_run", "names", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        names: set[str] = set()
        self._run = _compile(_parse(text), names)
        self.names = frozenset(names)

    def __repr__(self) -> str:
        return f"Formula({self.text!r})"

    def evaluate(self, values: Mapping[str, Any]) -> Value:
        """The result for `values`. Raises FormulaError."""
        try:
            result = self._run(values)
        except (OverflowError, ZeroDivisionError, ValueError, TypeError) as exc:
            raise FormulaError(f"{self.text!r} cannot be worked out: {exc}") from None
        if isinstance(result, float) and not math.isfinite(result):
            raise FormulaError(f"{self.text!r} is not a finite number here")
        return result

    def number(self, values: Mapping[str, Any]) -> float:
        """The result as a number. Raises FormulaError, also for text."""
        result = self.evaluate(values)
        if isinstance(result, str):
            raise FormulaError(f"{self.text!r} gives text: a number is needed")
        return float(result)

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether the result is true: not 0, not empty, not False."""
        return bool(self.evaluate(values))


@lru_cache(maxsize=1024)
def formula(text: str) -> Formula:
    """A Formula, remembered. Raises FormulaError."""
    return Formula(text)


def _parse(text: str) -> ast.expr:
    if len(text) > MAX_LENGTH:
        raise FormulaError(f"the formula has {len(text)} characters: at most {MAX_LENGTH} are allowed")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise FormulaError(f"{text[:80]!r} is not a formula") from None
    level: list[ast.AST] = [tree]
    count = depth = 0
    while level:
        count, depth = count + len(level), depth + 1
        if count > MAX_NODES or depth > MAX_DEPTH:
            raise FormulaError(f"the formula is too large: at most {MAX_NODES} parts, {MAX_DEPTH} deep")
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    return tree


# -- compiling: one small closure for each part ---------------------------------------------------------------


def _compile(node: ast.expr, names: set[str]) -> _Eval:
    made = _MAKERS.get(type(node))
    if made is None:
        raise FormulaError(f"a formula has no {type(node).__name__.lower()}")
    return made(node, names)


def _constant(node: Any, names: set[str]) -> _Eval:
    value = node.value
    if isinstance(value, bool | str):
        return lambda _: value
    if isinstance(value, int | float):
        try:
            number = float(value)
        except OverflowError:
            raise FormulaError("a number in the formula is too large") from None
        return lambda _: number
    raise FormulaError(f"a formula has no {type(value).__name__}")


def _name(node: Any, names: set[str]) -> _Eval:
    key = _dotted(node)
    names.add(key)

    def run(values: Mapping[str, Any]) -> Value:
        try:
            value = values[key]
        except KeyError:
            raise MissingName(f"{key} has no value") from None
        if isinstance(value, bool | str):
            return value
        if isinstance(value, int | float):
            return float(value)
        raise FormulaError(f"{key} is neither a number nor text")

    return run


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    raise FormulaError("a dot stands between names only")


def _numeric(value: Value) -> float:
    if isinstance(value, str):
        raise TypeError("text where a number belongs")
    return float(value)


def _power(base: float, exponent: float) -> float:
    result = base**exponent
    if isinstance(result, complex):
        raise ValueError("a root of a negative number")  # noqa: TRY004 - of its value, not of its type
    return float(result)


_ARITHMETIC: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}


def _binary(node: Any, names: set[str]) -> _Eval:
    apply = _ARITHMETIC.get(type(node.op))
    if apply is None:
        raise FormulaError(f"a formula has no {type(node.op).__name__.lower()}")
    left, right = _compile(node.left, names), _compile(node.right, names)
    return lambda values: apply(_numeric(left(values)), _numeric(right(values)))


def _unary(node: Any, names: set[str]) -> _Eval:
    operand = _compile(node.operand, names)
    if isinstance(node.op, ast.Not):
        return lambda values: not operand(values)
    if isinstance(node.op, ast.USub):
        return lambda values: -_numeric(operand(values))
    if isinstance(node.op, ast.UAdd):
        return lambda values: _numeric(operand(values))
    raise FormulaError(f"a formula has no {type(node.op).__name__.lower()}")


def _boolean(node: Any, names: set[str]) -> _Eval:
    parts = [_compile(part, names) for part in node.values]
    if isinstance(node.op, ast.And):
        return lambda values: all(part(values) for part in parts)
    return lambda values: any(part(values) for part in parts)


_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def _comparison(node: Any, names: set[str]) -> _Eval:
    for op in node.ops:
        if type(op) not in _COMPARE:
            raise FormulaError(f"a formula has no {type(op).__name__.lower()}")
    operators = [_COMPARE[type(op)] for op in node.ops]
    operands = [_compile(part, names) for part in (node.left, *node.comparators)]

    def run(values: Mapping[str, Any]) -> Value:
        left = operands[0](values)
        for apply, operand in zip(operators, operands[1:], strict=True):
            right = operand(values)
            if not apply(left, right):
                return False
            left = right
        return True

    return run


def _round(number: float, digits: float = 0.0) -> float:
    if not -20 <= digits <= 20 or digits != int(digits):
        raise ValueError("round takes -20 to 20 whole digits")
    return round(number, int(digits))


#: Function -> (what it does, least and most arguments).
_FUNCTIONS: dict[str, tuple[Callable[..., float], int, int]] = {
    "min": (min, 1, MAX_NODES),
    "max": (max, 1, MAX_NODES),
    "abs": (abs, 1, 1),
    "ceil": (math.ceil, 1, 1),
    "floor": (math.floor, 1, 1),
    "round": (_round, 1, 2),
}


def _call(node: Any, names: set[str]) -> _Eval:
    name = node.func.id if isinstance(node.func, ast.Name) else None
    if name not in _FUNCTIONS or node.keywords:
        raise FormulaError(f"a formula has the functions {', '.join(_FUNCTIONS)} only")
    apply, least, most = _FUNCTIONS[name]
    if not least <= len(node.args) <= most:
        raise FormulaError(f"{name} takes {least}{'' if most == least else f' to {most}'} argument(s)")
    arguments = [_compile(part, names) for part in node.args]
    return lambda values: float(apply(*(_numeric(argument(values)) for argument in arguments)))


_MAKERS: dict[type[ast.expr], Callable[[Any, set[str]], _Eval]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _name,
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.BoolOp: _boolean,
    ast.Compare: _comparison,
    ast.Call: _call,
}
