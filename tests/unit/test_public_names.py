"""The public names of the package `rainbow`: they are there, typed and documented, and cost nothing until used."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

import rainbow


@pytest.mark.parametrize("name", rainbow.__all__)
def test_a_public_name_is_documented(name: str) -> None:
    found = getattr(rainbow, name)
    assert found.__doc__ if isinstance(found, type) else get_args(found)


def test_type_checkers_see_the_same_names() -> None:
    source = ast.parse(Path(rainbow.__file__).read_text())
    typed = {
        alias.asname
        for node in ast.walk(source)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("rainbow.")
        for alias in node.names
    }
    assert typed == set(rainbow.__all__)
    assert (Path(rainbow.__file__).parent / "py.typed").is_file()


def test_completion_proposes_public_names_only() -> None:
    assert set(dir(rainbow)) == {*rainbow.__all__, "__version__"}


def test_a_name_that_is_not_public_is_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        rainbow.Nothing  # noqa: B018


def test_importing_rainbow_imports_nothing_else() -> None:
    program = "import sys, rainbow; print([m for m in sys.modules if m.split('.')[0] in ('pika', 'pydantic', 'typer')])"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
