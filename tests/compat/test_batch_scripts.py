"""Batch scripts that others wrote: Flux's own corpus of directives, and scripts of real projects."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

import pytest

from rainbow.errors import InvalidInput
from rainbow.jobspec import read
from rainbow.scripts import read_script
from rainbow.scripts.directives import find

pytestmark = pytest.mark.shared

SHARED = Path(os.environ.get("RAINBOW_SHARED", Path(__file__).resolve().parents[2].parent / "shared"))
SCRIPTS = SHARED / "data" / "batch-scripts"

#: Scripts that are refused as a whole, with a part of the reason.
REFUSED = {
    "fractale-batch-invalid.sh": "noodles",
    "LLNL--ExaConstit--workflows--Stage3--main_simulations--flux.sh": "#!",
    "LLNL--ExaConstit--workflows--Stage3--common_simulation_files--challenge_problem.bash": "#!",
}


@pytest.fixture(autouse=True)
def _present() -> None:
    if not SCRIPTS.is_dir():
        pytest.skip(f"no shared data at {SHARED} (set RAINBOW_SHARED)")


def test_directives_are_those_that_flux_finds() -> None:
    folder = SCRIPTS / "flux" / "directives-valid"
    files = sorted(folder.glob("*.*"))
    assert len(files) == 11
    for file in files:
        expected = (folder / "expected" / f"{file.stem}.expected").read_text()
        wanted = [ast.literal_eval(words) for words in re.findall(r"^SETARGS\((.*)\)$", expected, re.MULTILINE)]
        assert [list(d.words) for d in find(file.read_text(), "flux").found] == wanted, file.name


def test_directives_that_flux_refuses_are_refused_with_their_line() -> None:
    folder = SCRIPTS / "flux" / "directives-invalid"
    files = sorted(folder.glob("*.sh"))
    assert len(files) == 7
    for file in files:
        pattern = (folder / "expected" / f"{file.stem}.pattern").read_text()
        line = re.findall(r"line (\d+):", pattern)[0]
        with pytest.raises(InvalidInput, match=f"line {line}:"):
            find(file.read_text())


def test_scripts_of_real_projects_become_jobs() -> None:
    """Each directive is translated or named: none is dropped, and what comes out is a V1 jobspec."""
    files = [f for d in ("flux", "slurm", "lsf") for f in sorted((SCRIPTS / d).iterdir()) if f.is_file()]
    assert len(files) > 40
    clean = 0
    for file in files:
        if file.name in REFUSED:
            with pytest.raises(InvalidInput, match=REFUSED[file.name]):
                read_script(file.read_text(), file.name)
            continue
        if find(file.read_text()).dialect is None:
            continue
        job = read_script(file.read_text(), file.name)
        assert read(job.jobspec, dialect="V1").dialect == "V1", file.name
        clean += not job.refused
        for line in job.refused:
            assert re.match(r"line \d+: .*\w", line), (file.name, line)
    assert clean >= 18
