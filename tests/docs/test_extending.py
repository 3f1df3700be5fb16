"""docs/extending: the plugin package is built, installed and used; the code shown is code."""

from __future__ import annotations

import ast
import datetime
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from docs.documents import ROOT, read
from rainbow.jobspec.request import Demand
from rainbow.models.job import Dispatch

EXTENDING = ROOT / "docs" / "extending"

#: Run with the package installed: the real lookup of plugins, and the real decider.
USE = """
import json, random
from rainbow.jobspec import read
from rainbow.jobspec.dialects.simple import simple
from rainbow.errors import InvalidInput
from rainbow.models.cluster import ClusterRecord
from rainbow.resources import read_graph
from rainbow_workers.scheduling.decide import Decider, Job
from rainbow_workers.stores.base import Changes
from rainbow_workers.clusters.cache import ClusterCache
from rainbow import plugins

def resources(nodes, cores):
    ids = lambda n: f"0-{n - 1}" if n > 1 else "0"
    return {"version": 1, "execution": {
        "R_lite": [{"rank": ids(nodes), "children": {"core": ids(cores)}}],
        "nodelist": [f"n[{ids(nodes)}]"]}}

def record(name, nodes):
    summary = read_graph(resources(nodes, 8))
    return ClusterRecord(name=name, registration="r", identity="i" * 8, summary=summary.to_bytes())

world = ClusterCache()
world.apply(Changes(1, clusters={"small": record("small", 2), "large": record("large", 8)}))
decider = Decider(world, selection="tidy", options={"spare": 0})
spec = read(simple(["hostname"], nodes=2, tasks=2, cores_per_task=8))
went = []
for number in range(4):
    job = Job(str(number), "alice", spec, frozenset("*"), 0.0)
    decision = decider.decide(job, 0.0, random.Random(1))
    world.reserve(decision.cluster, spec.demand)
    went.append([decision.cluster, dict(decision.terms), {c: r.detail for c, r in decision.reasons.items()}])
try:
    decider.check(("tidy", {"colour": "red"}))
    refused = ""
except InvalidInput as exc:
    refused = str(exc)
print(json.dumps({"names": plugins.names("rainbow.selection"), "went": went, "refused": refused}))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package in a folder of its own, built from its pyproject.toml without the network."""
    pytest.importorskip("hatchling")
    target = tmp_path_factory.mktemp("plugins")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    here = ["--no-deps", "--no-build-isolation", "--no-index", "--target", str(target)]
    subprocess.run([*pip, *here, str(EXTENDING / "selection-plugin")], check=True, capture_output=True, timeout=200)
    return target


def test_the_selection_plugin_is_found_and_decides(installed: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", USE],
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    assert {"tidy", "random", "least-loaded"} <= set(said["names"])
    # The small one first; what was assigned counts at once, so the second job finds it full.
    assert [cluster for cluster, _, _ in said["went"]] == ["small", "large", "large", "large"]
    assert said["went"][0][1] == {"selection": "tidy", "cores": 16}
    assert said["went"][1][2]["small"] == "no room now: 0 nodes and 0 cores are free"
    assert said["refused"] == "selection tidy has no option 'colour': it takes spare"


def test_the_plugin_is_the_one_that_is_shown() -> None:
    project = (EXTENDING / "selection-plugin" / "pyproject.toml").read_text()
    shown = [b.body for b in read(EXTENDING / "selection.md").blocks if b.language == "toml"]
    assert all(body in project for body in shown)
    assert shown


def test_the_admission_plugin_shown_admits_and_refuses() -> None:
    blocks = read(EXTENDING / "admission.md").blocks
    (code,) = (b.body for b in blocks if b.language == "python" and b.file is None)
    module: dict[str, Any] = {}
    exec(compile(code, "admission.md", "exec"), module)

    class Day:
        weekend = True

        @classmethod
        def today(cls) -> datetime.date:
            return datetime.date(2026, 5, 2 if cls.weekend else 4)

    module["date"] = Day
    from rainbow.jobspec import read as read_jobspec
    from rainbow.jobspec.dialects.simple import simple
    from rainbow_agents.intake.admission.policies import Load

    spec = read_jobspec(simple(["sleep", "1"], duration="5h"))
    job = Dispatch(
        id="1", attempt=1, cluster="blue", jobspec=spec.document, user="alice", submitted_at=0.0, assigned_at=0.0
    )
    rule = module["Weekdays"](hours=4)
    refusal = rule.check(job, spec, Load(0, 0))
    assert (refusal.code, refusal.detail) == ("policy", "at the weekend jobs may last 4 h at most")
    assert module["Weekdays"](hours=6).check(job, spec, Load(0, 0)) is None
    Day.weekend = False
    assert rule.check(job, spec, Load(0, 0)) is None


def test_python_that_is_shown_is_python_and_imports_what_exists() -> None:
    for file in sorted(EXTENDING.glob("*.md")):
        for block in read(file).blocks:
            if block.language != "python":
                continue
            for node in ast.walk(ast.parse(block.body)):
                if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("rainbow"):
                    module = __import__(node.module, fromlist=["_"])
                    assert all(hasattr(module, name.name) for name in node.names), f"{file.name}: {node.module}"


def test_demand_is_what_the_page_says() -> None:
    assert [f for f in ("nodes", "cores", "gpus") if hasattr(Demand(), f)] == ["nodes", "cores", "gpus"]
