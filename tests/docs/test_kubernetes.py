"""docs/deploy/kubernetes: manifests that Kubernetes would take, without root, whose parts fit together."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.documents import ROOT
from rainbow.settings import load

FOLDER = ROOT / "docs" / "deploy" / "kubernetes"
FILES = sorted(FOLDER.rglob("*.yaml"))
#: Kinds of operators and tools, whose schemas are not Kubernetes' own.
FOREIGN = {"MiniCluster", "RabbitmqCluster", "Kustomization", "Cluster"}


def documents(file: Path) -> list[dict[str, Any]]:
    return [d for d in yaml.safe_load_all(file.read_text()) if isinstance(d, dict) and "kind" in d]


EVERYTHING = [(file, document) for file in FILES for document in documents(file)]


def named(kind: str, name: str) -> dict[str, Any]:
    [found] = [d for _, d in EVERYTHING if d["kind"] == kind and d["metadata"]["name"] == name]
    return found


def pods() -> Iterator[tuple[str, Mapping[str, Any], list[dict[str, Any]]]]:
    """Name, security context and containers of everything that makes pods."""
    for _, document in EVERYTHING:
        spec = document.get("spec", {})
        if "template" in spec:
            inner = spec["template"]["spec"]
            yield document["metadata"]["name"], inner, inner["containers"]
        elif document["kind"] == "MiniCluster":
            yield document["metadata"]["name"], spec["pod"], spec["containers"]


@pytest.mark.parametrize(
    ("file", "document"), EVERYTHING, ids=[f"{f.parent.name}-{d['kind']}-{i}" for i, (f, d) in enumerate(EVERYTHING)]
)
def test_kubernetes_takes_it(file: Path, document: dict[str, Any]) -> None:
    if document["kind"] in FOREIGN:
        assert document["apiVersion"]
        return
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    validate.validate(document, "1.31", strict=True)
    broken = {**document, "spec": {**document.get("spec", {}), "replica": 1}}
    with pytest.raises(Exception, match="replica"):
        validate.validate(broken, "1.31", strict=True)


def test_nothing_runs_as_root() -> None:
    seen = 0
    for name, pod, containers in pods():
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["runAsUser"] > 0, name
        assert pod["automountServiceAccountToken"] is False, name
        for container in containers:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False, name
            assert context["capabilities"] == {"drop": ["ALL"]}, name
            seen += 1
    assert seen == 5


def test_what_kustomizations_name_is_there() -> None:
    for file, document in EVERYTHING:
        if document["kind"] != "Kustomization":
            continue
        names = [*document.get("resources", ())]
        names += [n for g in document.get("configMapGenerator", ()) for n in g.get("files", ())]
        for name in names:
            target = file.parent / name
            assert target.is_file() or (target / "kustomization.yaml").is_file(), f"{file}: {name}"
        beside = {f.name for f in file.parent.glob("*.yaml")} - {"kustomization.yaml", "kind-config.yaml"}
        assert beside <= set(names), f"{file}: not all files are used"


def test_settings_secrets_and_commands_are_known() -> None:
    config = FOLDER / "base" / "rainbow-config.yaml"
    settings = load(config, {"RAINBOW_BROKER_URL": "amqp://u:p@rabbitmq:5672/rainbow"})
    port = int(str(settings.scheduler.metrics).rpartition(":")[2])
    [container] = named("Deployment", "scheduler")["spec"]["template"]["spec"]["containers"]
    assert [p["containerPort"] for p in container["ports"]] == [port]
    assert container["args"][2] == f"{container['volumeMounts'][0]['mountPath']}/{config.name}"
    assert str(settings.keyring).startswith(container["volumeMounts"][1]["mountPath"])
    variables = [e["name"] for e in container["env"]]
    mini = named("MiniCluster", "blue")["spec"]["containers"][1]
    variables += [*mini["environment"], *mini["secrets"]]
    load(config, {name: "blue" if name.endswith("NAME") else "amqp://u:p@h/v" for name in variables})
    assert all(v.startswith("RAINBOW_") for v in variables)
    for program in (container["args"][0], "rainbow-agent", "rainbow"):
        assert (Path(sys.executable).parent / program).exists()
    made = {
        g["name"] for g in yaml.safe_load((FOLDER / "overlays/kind/kustomization.yaml").read_text())["secretGenerator"]
    }
    text = (FOLDER / "base" / "scheduler.yaml").read_text() + (FOLDER / "base" / "rabbitmq.yaml").read_text()
    assert set(re.findall(r"secret(?:KeyRef:\n +name|Name): (\S+)", text)) == made


def test_ports_and_labels_fit() -> None:
    """A pod that a network policy lets in has the label that it names, and the port that is served."""
    labels = {d["metadata"]["name"]: d["spec"]["template"]["metadata"]["labels"] for d in workloads()}
    policies = {d["metadata"]["name"]: d["spec"] for _, d in EVERYTHING if d["kind"] == "NetworkPolicy"}
    assert policies["default-deny"]["podSelector"] == {}
    for policy, workload, port in (
        ("broker", "rabbitmq", 5672),
        ("store", "valkey", 6379),
        ("metrics", "scheduler", 9090),
    ):
        assert policies[policy]["podSelector"]["matchLabels"].items() <= labels[workload].items()
        assert policies[policy]["ingress"][0]["ports"] == [{"port": port}]
    allowed = policies["broker"]["ingress"][0]["from"]
    assert allowed[0]["podSelector"]["matchLabels"].items() <= labels["scheduler"].items()
    assert (
        policies["store"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"].items() <= labels["scheduler"].items()
    )
    mini = named("MiniCluster", "blue")["spec"]["pod"]["labels"]
    assert allowed[1]["podSelector"]["matchLabels"].items() <= mini.items()
    assert (
        allowed[1]["namespaceSelector"]["matchLabels"].items()
        <= named("Namespace", "rainbow-clusters")["metadata"]["labels"].items()
    )
    budget = named("PodDisruptionBudget", "scheduler")["spec"]
    deployment = named("Deployment", "scheduler")["spec"]
    assert budget["selector"] == deployment["selector"]
    assert budget["minAvailable"] < deployment["replicas"]


def workloads() -> list[dict[str, Any]]:
    return [d for _, d in EVERYTHING if d["kind"] in ("Deployment", "StatefulSet")]


def test_the_sidecar_waits_registers_and_goes(tmp_path: Path) -> None:
    """agent.sh with programs of the test in place of ours: what is called, with what, in which order."""
    called = tmp_path / "called"
    for program in ("rainbow", "rainbow-agent", "sleep"):
        (tmp_path / program).write_text(f'#!/bin/sh\necho "{program} $* FLUX_URI=$FLUX_URI" >>{called}\n')
        (tmp_path / program).chmod(0o755)
    script = FOLDER / "minicluster" / "agent.sh"
    shell = shutil.which("sh")
    assert shell is not None
    # A socket that is there: any will do.
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "flux"))
        base = {
            "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
            "FLUX_URI": "",
            "RAINBOW_CLUSTER_NAME": "blue",
            "RAINBOW_FLUX_SOCKET": str(tmp_path / "flux"),
        }

        def run(*arguments: str, **environment: str) -> list[str]:
            called.write_text("")
            done = subprocess.run(
                [shell, str(script), *arguments], env={**base, **environment}, timeout=120, check=False
            )
            assert done.returncode == 0
            return called.read_text().splitlines()

        assert run() == [f"rainbow-agent run --state-dir /tmp/rainbow-agent FLUX_URI=local://{tmp_path}/flux"]
        assert run(JOB_COMPLETION_INDEX="1") == ["sleep infinity FLUX_URI="]
        assert run("stop", JOB_COMPLETION_INDEX="1") == []
        assert [line.split()[:4] for line in run("stop")] == [
            ["rainbow", "clusters", "drain", "blue"],
            ["rainbow", "clusters", "delete", "blue"],
        ]
