"""The session of Flux runs under Flux's own Python too (`flux-cli`), where rainbow is not installed."""

from __future__ import annotations

import ast
from pathlib import Path

import rainbow_agents

SESSION = Path(rainbow_agents.__file__).parent / "executors" / "flux" / "session"


def test_the_session_imports_nothing_of_rainbow() -> None:
    found = [
        f"{file.name}: {name}"
        for file in sorted(SESSION.glob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        for name in _imported(node)
        if name.partition(".")[0] in ("rainbow", "rainbow_agents", "rainbow_workers")
    ]
    assert not found


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
