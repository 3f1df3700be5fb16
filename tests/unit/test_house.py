"""The code stays small: bounds for modules, classes and functions, and a list of those that are larger today."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("rainbow", "workers/rainbow_workers", "agents/rainbow_agents")

MODULE_LINES, CLASS_LINES, CLASS_METHODS, FUNCTION_LINES = 400, 300, 20, 60

#: What is larger than the bounds, with its ceiling. A ceiling may only be lowered, and a row that is no longer needed
#: fails the test, so that the table can only shrink.
CEILINGS: dict[str, int] = {
    "rainbow/brokers/rabbitmq/publisher.py::Publisher": 346,
}


def sizes() -> Iterator[tuple[str, int, int]]:
    """Name, size and bound of every module, class and function."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text()
            name = path.relative_to((ROOT / package).parent).as_posix()
            yield name, text.count("\n"), MODULE_LINES
            yield from of_definitions(name, ast.parse(text))


def of_definitions(where: str, tree: ast.AST) -> Iterator[tuple[str, int, int]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{where}::{node.name}"
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if isinstance(node, ast.ClassDef):
                yield name, lines, CLASS_LINES
                yield f"{name} (public methods)", len(list(public_methods(node))), CLASS_METHODS
            else:
                yield name, lines, FUNCTION_LINES
            yield from of_definitions(name, node)
        else:
            yield from of_definitions(where, node)


def public_methods(node: ast.ClassDef) -> Iterator[str]:
    """The public methods of a class; the tests of a contract are none."""
    for item in node.body:
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) and not item.name.startswith(("_", "test_")):
            yield item.name


def test_sizes_are_within_their_bounds() -> None:
    found = {name: (size, bound) for name, size, bound in sizes()}
    assert len(found) > 2000, "the packages are not where this test looks"
    above = {name: size for name, (size, bound) in found.items() if size > CEILINGS.get(name, bound)}
    assert not above, f"split what is too large (bounds: {__file__}): {above}"
    unneeded = [name for name in CEILINGS if name not in found or found[name][0] <= found[name][1]]
    assert not unneeded, f"these rows of CEILINGS are no longer needed, remove them: {unneeded}"


@pytest.mark.parametrize("text", ["class A:\n    def b(self):\n        if 1:\n            def c(): ...\n"])
def test_definitions_are_found_at_any_depth(text: str) -> None:
    names = [name for name, _, _ in of_definitions("m", ast.parse(text))]
    assert names == ["m::A", "m::A (public methods)", "m::A::b", "m::A::b::c"]
