"""compose.yaml and the Dockerfile, as far as they can be checked without a Docker engine."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from compose_spec import PyCompose

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())


def test_ports_are_on_the_loopback_only() -> None:
    ports = [p for service in COMPOSE["services"].values() for p in service.get("ports", [])]
    assert ports
    assert all(str(p).startswith("127.0.0.1:") for p in ports)


def test_every_long_running_service_has_a_health_check() -> None:
    for name, service in COMPOSE["services"].items():
        if service.get("restart") != "no":
            assert "healthcheck" in service, name


def test_what_is_waited_for_can_be_waited_for() -> None:
    for service in COMPOSE["services"].values():
        for needed, how in service.get("depends_on", {}).items():
            other = COMPOSE["services"][needed]
            if how["condition"] == "service_healthy":
                assert "healthcheck" in other, needed
            else:
                assert how["condition"] == "service_completed_successfully"
                assert other["restart"] == "no"


def test_volumes_are_declared() -> None:
    used = {v.split(":")[0] for s in COMPOSE["services"].values() for v in s.get("volumes", [])}
    assert used == set(COMPOSE["volumes"])


def test_what_is_copied_into_the_image_exists() -> None:
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert copies
    for line in copies:
        for path in line.split():
            assert (ROOT / path).exists(), path


@pytest.mark.parametrize("name", ["agent-red", "agent-tiny"])
def test_agents_run_graphs_that_are_in_the_image(name: str) -> None:
    environment = COMPOSE["services"][name]["environment"]
    graph = Path(environment["RAINBOW_AGENT_GRAPH"]).name
    assert (ROOT / "rainbow/demo/data" / graph).exists()


def test_settings_in_the_environment_are_settings() -> None:
    from rainbow.settings import load

    for name, service in COMPOSE["services"].items():
        environment = {
            k: v.replace("${RAINBOW_BROKER_PASSWORD:-rainbow}", "x")
            for k, v in (service.get("environment") or {}).items()
        }
        if any(k.startswith("RAINBOW_") for k in environment):
            settings = load(None, environment)
            assert "rabbitmq:5672" in settings.broker.url.get_secret_value(), name


def test_it_is_a_compose_file() -> None:
    """By the Compose specification (its parser in the package compose-spec), with anchors and merges resolved."""
    parsed = PyCompose.from_json(json.dumps(COMPOSE))
    assert set(parsed.service_names()) == {"rabbitmq", "redis", "keys", "scheduler", "agent-red", "agent-tiny"}


def test_a_wrong_word_would_be_noticed() -> None:
    wrong = json.loads(json.dumps(COMPOSE))
    wrong["services"]["redis"]["healthchek"] = {}
    with pytest.raises(ValueError, match="healthchek"):
        PyCompose.from_json(json.dumps(wrong))
