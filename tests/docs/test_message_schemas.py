"""The JSON Schemas that are installed are those that docs/generate.py makes of the models."""

from __future__ import annotations

import runpy
from pathlib import Path

import jsonschema
import pytest

from rainbow import schemas


@pytest.mark.parametrize("name", schemas.NAMES)
def test_a_schema_is_current_and_whole(name: str) -> None:
    generate = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "generate.py"))
    assert set(generate["schemas"].SCHEMAS) == set(schemas.NAMES)
    text = (Path(schemas.__file__).parent / f"{name}.json").read_text()
    assert text == generate["schemas"].schema(name), "run: python docs/generate.py"
    jsonschema.Draft202012Validator.check_schema(schemas.load(name))
    assert "components" not in text
