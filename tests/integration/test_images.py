"""An image's needs choose the cluster: `rainbow submit --image`, `rainbow compat`, on real workers in this process."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oci import LayoutWriter, document
from running import Rainbow, Shell, alone, graph

IMAGE = "ghcr.io/org/app:1"


@pytest.fixture(autouse=True)
def _loggers() -> Iterator[None]:
    """Commands set up logging of their process, which here is ours."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)


@pytest.fixture
def rainbow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rainbow]:
    """Clusters blue (OpenMPI 4.1.2) and red (OpenMPI 3.1), and an image that needs OpenMPI 4."""
    alone(monkeypatch, tmp_path)
    monkeypatch.delenv("RAINBOW_KEYRING")
    name = uuid.uuid4().hex
    made = Rainbow(tmp_path, f"memory://{name}", f"memory://{name}")
    layout = LayoutWriter(tmp_path / "images" / "app")
    image = layout.image()
    layout.add(image, "1")
    needs = {"mpi.implementation": "OpenMPI", "mpi.version": ">=4.1,<5", "os.vendor": "rocky"}
    layout.add(layout.artifact(image, document(org_supercontainers=needs)))
    source = {"name": "layout", "options": {"path": str(tmp_path / "images")}}
    made.write_config(
        {"store": {"url": f"memory://{name}", "prefix": "rainbow:"}, "compatibility": {"sources": [source]}}
    )
    monkeypatch.setenv("RAINBOW_CONFIG", str(made.config))
    monkeypatch.setenv("RAINBOW_TOKEN", made.token())
    yield made
    made.end()


@pytest.fixture
def sh(rainbow: Rainbow, capsys: Any, tmp_path: Path) -> Shell:
    shell = Shell(capsys)
    for cluster, version in (("blue", "4.1.2"), ("red", "3.1")):
        rainbow.cluster(cluster)
        mpi = {"type": "mpi", "implementation": "OpenMPI", "version": version}
        keys = [key for key, v in graph()["graph"]["nodes"].items() if v["metadata"]["type"] == "node"]
        made = {
            "nodes": {"mpi0": {"metadata": mpi}},
            "edges": [{"source": key, "target": "mpi0", "relation": "contains"} for key in keys],
        }
        (tmp_path / f"{cluster}.json").write_text(json.dumps({"graph": made}))
        shell(f"subsystem add {cluster} mpi --nodes {cluster}.json")
    return shell


def test_a_job_goes_where_its_image_runs(rainbow: Rainbow, sh: Shell) -> None:
    for _ in range(3):
        assert "assigned to blue (1 of 2 clusters" in sh(f"submit --image {IMAGE} hostname").err
    refused = sh(f"submit -C red --image {IMAGE} hostname", code=1)
    assert "compatibility: needs mpi.version >=4.1,<5: none of 2 nodes meet that; there is 3.1 on 2" in refused.err
    job = sh(f"submit --image {IMAGE} --select compatibility --name x hostname").out.strip()
    assert "compatibility=0" in sh(f"explain {job}").out
    # A jobspec carries the same needs; what is known of no image is said, and changes nothing.
    dry = json.loads(sh(f"submit --dry-run --image {IMAGE} hostname").out)
    Path("job.json").write_text(json.dumps(dry))
    assert "mpi.version >=4.1,<5: none of 2 nodes" in sh("submit -C red --jobspec job.json", code=1).err
    assert "no source of compatibility.sources has image ghcr.io/a:1" in sh("submit --image ghcr.io/a:1 hostname").err


def test_needs_that_a_program_gives_are_checked(rainbow: Rainbow, sh: Shell) -> None:
    with rainbow.client() as client:
        wrong = client.submit(command=["x"], compatibility=[{"attribute": "mpi.version"}]).wait_answer(60)
        assert (wrong.status, wrong.cluster) == ("invalid", None)
        assert "compatibility[0].value: text is needed" in (wrong.error or "")
        for _ in range(3):
            need = {"attribute": "mpi.version", "value": "<4 | >=9"}
            assert client.submit(command=["x"], compatibility=[need]).wait_answer(60).cluster == "red"


def test_compat_shows_need_by_need(rainbow: Rainbow, sh: Shell, tmp_path: Path) -> None:
    shown = sh(f"compat {IMAGE}").out
    rows = [line.split() for line in shown.splitlines()]
    assert rows[0][:5] == ["3", "needs,", "1", "preferences,", "from"]
    assert ["needs", "mpi.version", ">=4.1,<5", "blue", "yes", "-"] in rows
    assert "none of 2 nodes meet that; there is 3.1 on 2" in shown
    assert "blue: meets all needs" in shown
    assert "red: no: none of 2 nodes meet that; there is 3.1 on 2" in shown
    told = json.loads(sh(f"compat --json {IMAGE}").out)
    assert {n["attribute"]: n["clusters"]["blue"]["met"] for n in told["needs"]} == {
        "mpi.implementation": True,
        "mpi.version": True,
        "cpu.target": True,
        "os.vendor": False,
    }
    assert told["clusters"]["red"]["met"] is False
    sh(f"compat -C red {IMAGE}", code=1)
    assert "has image ghcr.io/none" in sh("compat ghcr.io/none:1", code=5).err
    assert "no name of an image" in sh("compat A/B", code=2).err
    # Offline, on files.
    (tmp_path / "graph.json").write_text(json.dumps(graph()))
    offline = sh(f"compat --graph graph.json --subsystem mpi=blue.json {IMAGE}").out
    assert "meets all needs" in offline
    assert "3.1" in sh(f"compat --graph graph.json --subsystem mpi=red.json {IMAGE}", code=1).out
    assert "no: none of 2 nodes meet that" in sh(f"compat --graph graph.json {IMAGE}", code=1).out
