"""Jobspecs that others wrote: each is accepted or refused as its folder, or its row of truths, says."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rainbow.errors import InvalidJobspec
from rainbow.jobspec import Jobspec, detect, read
from rainbow.jobspec.flux.v1 import V1Translator

pytestmark = pytest.mark.shared

SHARED = Path(os.environ.get("RAINBOW_SHARED", Path(__file__).resolve().parents[2].parent / "shared"))
DATA = SHARED / "data"
JOBSPECS = DATA / "jobspecs"

# Pass the published nextgen schema by its laxness, yet cannot be carried out: they name what is not there,
# or wish in a form that has no field.
LAX_AND_REFUSED = ("jobspec-flux-jobspec", "jobspec-go-nextgen-example1")


@pytest.fixture(autouse=True)
def _present() -> None:
    if not DATA.is_dir():
        pytest.skip(f"no shared data at {SHARED} (set RAINBOW_SHARED)")


def _files(folder: str) -> list[Path]:
    found = sorted(path for path in (JOBSPECS / folder).rglob("*") if path.suffix in (".yaml", ".json"))
    assert found, f"{folder} is empty"
    return found


def _problem(path: Path, dialect: Any = None) -> str | None:
    try:
        assert isinstance(read(path.read_bytes(), dialect=dialect), Jobspec)
    except InvalidJobspec as exc:
        return str(exc)
    return None


def _rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / "truths.jsonl").read_text().splitlines()]


def test_v1_is_accepted_also_when_v1_is_asked_for() -> None:
    refused = {p.name: problem for p in _files("v1-valid") if (problem := _problem(p, "V1"))}
    assert refused == {}
    assert {read(p.read_bytes()).dialect for p in _files("v1-valid")} == {"V1"}


def test_canonical_is_accepted() -> None:
    assert {p.name: problem for p in _files("canonical-valid") if (problem := _problem(p))} == {}
    assert {read(p.read_bytes()).dialect for p in _files("canonical-valid")} <= {"V1", "canonical"}


@pytest.mark.parametrize(
    ("folder", "dialect"), [("v1-invalid", "V1"), ("canonical-invalid", None), ("nextgen-invalid", None)]
)
def test_invalid_is_refused_in_one_line(folder: str, dialect: Any) -> None:
    problems = {path.name: _problem(path, dialect) for path in _files(folder)}
    assert [name for name, problem in problems.items() if problem is None] == []
    assert [problem for problem in problems.values() if problem and ("\n" in problem or len(problem) > 300)] == []


def test_nextgen_is_accepted() -> None:
    assert {p.name: problem for p in _files("nextgen") if (problem := _problem(p))} == {}
    assert {read(p.read_bytes()).dialect for p in _files("nextgen")} == {"nextgen"}


def test_lenient_nextgen_is_accepted_where_it_can_be_carried_out() -> None:
    problems = {path.name: _problem(path) for path in _files("nextgen-lenient")}
    refused = sorted(name for name, problem in problems.items() if problem)
    assert refused == sorted(name for name in problems if name.startswith(LAX_AND_REFUSED))


def test_older_list_form_is_accepted() -> None:
    import yaml

    for path in _files("nextgen-old-list-form"):
        document = yaml.load(path.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        # Collections of wishes, out of which a simulation made its jobspecs, lie among the jobspecs.
        if isinstance(document, dict) and "version" in document:
            assert detect(document) == "nextgen-list"
            assert read(path.read_bytes()).dialect == "nextgen-list"
        else:
            assert _problem(path) is not None, path.name


def test_rows_of_truths() -> None:
    wrong = []
    for row in _rows():
        problem = _problem(DATA / row["jobspec"], row.get("dialect"))
        if (row["expect"] == "invalid") != (problem is not None):
            wrong.append((row["jobspec"], row["expect"], problem))
    assert wrong == []


def test_json_and_mapping_read_alike() -> None:
    for path in _files("v1-valid"):
        one = read(path.read_bytes())
        assert read(one.document) == one
        assert read(json.dumps(one.document)) == one


def test_what_translates_is_v1() -> None:
    translated = 0
    for folder in ("v1-valid", "canonical-valid", "nextgen", "nextgen-lenient", "nextgen-old-list-form"):
        for path in _files(folder):
            try:
                jobs = V1Translator().translate(read(path.read_bytes()))
            except InvalidJobspec:
                continue
            seen: set[str] = set()
            for job in jobs:
                again = read(json.dumps(job.document), dialect="V1")
                assert again.duration is not None
                assert seen.issuperset(job.depends_on)
                seen.add(job.name)
            translated += 1
    # All of V1 does; of the rest what has no socket, rack, memory ... in it.
    assert translated > len(_files("v1-valid")) + 100
