"""What commands that talk to rainbow begin with: the settings in force, and a client."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rainbow.client import Client
    from rainbow.client.connection import Connection
    from rainbow.settings import Settings


def load_settings(config: Path | None) -> Settings:
    """The settings in force. What libraries log is kept from the person, who gets one line about what went wrong."""
    from rainbow import logs, settings

    debug = bool(os.environ.get("RAINBOW_DEBUG"))
    level = "debug" if debug else "critical"
    logs.setup(level)
    loaded = settings.load(config)
    logs.setup(level, secrets=settings.secrets(loaded))
    if not debug:
        logging.getLogger("pika").setLevel(logging.CRITICAL)
    return loaded


@contextmanager
def connection(settings: Settings, name: str, token: str | None = None, timeout: float = 30.0) -> Iterator[Connection]:
    """A connection to the broker that is there (else raises BrokerUnavailable, BadCredentials), closed afterwards."""
    from rainbow.client.connection import Connection
    from rainbow.client.credentials import Credentials

    made = Connection(settings, Credentials.from_settings(settings, token), broker=None, timeout=timeout, name=name)
    try:
        made.ready()
        yield made
    finally:
        made.close()


@contextmanager
def client(config: Path | None, token: str | None = None, timeout: float = 30.0) -> Iterator[Client]:
    """A client made from the settings, closed afterwards."""
    from rainbow.client import Client

    with Client(settings=load_settings(config), token=token, timeout=timeout, name="rainbow-cli") as made:
        yield made
