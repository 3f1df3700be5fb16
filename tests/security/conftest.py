"""Fixtures of the security tests."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # `import doors` in every import mode
sys.path.insert(0, str(Path(__file__).parents[1] / "system"))

from rainbow.security.tokens import KeyRing
from security.doors import Door, start_with_tokens
from servers import NoServer, Private, RabbitServer, Run


@pytest.fixture(scope="session")
def oauth_rabbit(test_run: Run) -> tuple[RabbitServer, KeyRing]:
    """Started by the first process of the run that asks, shared by all."""
    with test_run.locked() as notes:
        if (known := notes.get("rabbitmq-oauth")) is None:
            folder = Path(tempfile.mkdtemp(prefix="rabbitmq-oauth-", dir=test_run.folder))
            ring = KeyRing.generate()
            ring.save(folder / "keys.json")
            try:
                known = start_with_tokens(folder, ring).to_json()
            except NoServer as exc:
                if os.environ.get("RAINBOW_TEST_REQUIRE") == "1":
                    raise
                pytest.skip(f"no server: {exc}")
            notes["rabbitmq-oauth"] = known
    return RabbitServer.from_json(known), KeyRing.load(Path(known["folder"]) / "keys.json")


@pytest.fixture
def door(oauth_rabbit: tuple[RabbitServer, KeyRing], test_run: Run) -> Door:
    """A fresh vhost behind the door."""
    server, ring = oauth_rabbit
    return Door(server, ring, server.new_vhost(test_run.name))


@pytest.fixture
def own_door(tmp_path_factory: pytest.TempPathFactory, test_run: Run) -> Iterator[Door]:
    """A RabbitMQ of this test alone, whose keys may be changed."""
    folder = tmp_path_factory.mktemp("rabbitmq")
    ring = KeyRing.generate()
    private = Private(lambda f: start_with_tokens(f, ring), folder)
    server = private.server
    yield Door(server, ring, server.new_vhost(test_run.name))
    private.end()
