"""What commands that talk to rainbow begin with: the settings in force, and a client."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rainbow.client import Client
    from rainbow.settings import Settings


def load_settings(config: Path | None) -> Settings:
    """The settings in force, with logs that fit a command: only what the person must know."""
    from rainbow import logs, settings

    logs.setup("debug" if os.environ.get("RAINBOW_DEBUG") else "error")
    return settings.load(config)


@contextmanager
def client(config: Path | None, token: str | None = None, timeout: float = 30.0) -> Iterator[Client]:
    """A client made from the settings, closed afterwards."""
    from rainbow.client import Client

    with Client(settings=load_settings(config), token=token, timeout=timeout, name="rainbow-cli") as made:
        yield made
