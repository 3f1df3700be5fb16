"""Fixtures of the integration tests."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from agentrig import Agents
from rig import Rig
from running import Shell
from webs import Web, settings_of
from webserver import serve


@pytest.fixture
def sh(capsys: Any) -> Shell:
    """Runs commands in this process."""
    return Shell(capsys)


@pytest.fixture(scope="module")
def module_vhost(rabbit_server: Any, test_run: Any) -> str:
    url: str = rabbit_server.vhost_url(rabbit_server.kept_vhost(test_run.name))
    return url


@pytest.fixture(scope="module")
def web(module_vhost: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with Rig(module_vhost, f"memory://{uuid.uuid4().hex}") as rig:
        agents = Agents(rig, tmp_path_factory.mktemp("web"))
        try:
            agents.start("blue", executor="local")
            keyring = tmp_path_factory.mktemp("ring") / "keys.json"
            rig.ring.save(keyring)
            for url in serve(settings_of(rig, keyring)):
                made = Web(rig, url)
                yield made
                for client in made.clients:
                    client.close()
        finally:
            agents.close()
