"""The images and 48 clusters of the first rainbow's simulation: which image runs where, as its table says.

In the table 1 is a perfect match, 0.5 a compatible one (an image without GPU support on nodes with GPUs), 0 none.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from oci import LayoutWriter, document
from rainbow.artifacts import needs_of, resolve
from rainbow.jobspec import read, simple
from rainbow.jobspec.compatibility import carrying
from rainbow.resources import Summary, match, read_graph
from rainbow.resources.matching.host_needs import score

pytestmark = pytest.mark.shared

SHARED = Path(os.environ.get("RAINBOW_SHARED", Path(__file__).resolve().parents[2].parent / "shared"))
DATA = SHARED / "data"
SUBSYSTEMS = DATA / "subsystems" / "lammps48"


@pytest.fixture(autouse=True)
def _present() -> None:
    if not DATA.is_dir():
        pytest.skip(f"no shared data at {SHARED} (set RAINBOW_SHARED)")


def _cluster(colour: str) -> Summary:
    summary = read_graph(DATA / "graphs" / "jgf-v2" / "lammps48" / f"{colour}.json")
    for file in sorted((SUBSYSTEMS / colour).glob("*-subsystem.json")):
        summary = summary.with_subsystem(file.name.removesuffix("-subsystem.json"), file)
    return summary


def _images(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Each image of the simulation as a layout with an artifact, and what comes out as its needs."""
    text = (DATA / "jobspecs" / "nextgen-old-list-form" / "lammps" / "jobspecs.yaml").read_text()
    layout = LayoutWriter(folder / "lammps")
    found = {}
    for row in yaml.safe_load(text)["jobspecs"]:
        attributes = {name: value for part in row["resources"].values() for name, value in part.items()}
        image = layout.image(annotations={"name": row["name"]})
        layout.add(image, row["name"])
        layout.add(layout.artifact(image, document(org_supercontainers=attributes)))
        facts = resolve(f"ghcr.io/x/lammps:{row['name']}", [("layout", {"path": str(folder)})])
        assert facts is not None
        # For the simulation the system of an image had to be that of the cluster.
        found[row["name"]] = needs_of(facts, {"os.*": "need"})
    return found


def test_every_image_runs_where_the_table_says(tmp_path: Path) -> None:
    images = _images(tmp_path)
    rows = list(csv.DictReader((SUBSYSTEMS / "jobspec-to-cluster-matches.csv").read_text().splitlines()))
    seen = {0.0: 0, 0.5: 0, 1.0: 0}
    wrong = []
    for row in rows:
        summary = _cluster(row[""])
        for name, needs in images.items():
            spec = read(carrying(simple(["lmp"]), needs))
            said = 0.0
            if match(spec.request, summary).match:
                said = 1.0 if not spec.preferences or score(summary, spec.preferences) == 1 else 0.5
            expected = float(row[name])
            seen[expected] += 1
            if said != expected:
                wrong.append((row[""], name, expected, said))
    assert wrong == []
    assert sum(seen.values()) == 48 * len(images) > 800
    assert seen[1.0] > 10
    assert seen[0.5] > 5
