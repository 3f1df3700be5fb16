"""What commands that talk to rainbow begin with: the settings in force, and a client."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rainbow.cli.render import output
from rainbow.errors import BrokerUnavailable, Denied, TimedOut

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
        try:
            yield made
        except (Denied, BrokerUnavailable) as exc:
            hint = None if config else _hidden_instance()
            if hint is None:
                raise
            raise type(exc)(f"{exc} ({hint})") from None


def _hidden_instance() -> str | None:
    """Say that the settings of `rainbow up` are there, and others go before them."""
    from rainbow.settings import DATA_DIR, FILE_NAME, find

    file, instance = find(), DATA_DIR / FILE_NAME
    if file is None or not instance.is_file() or file.samefile(instance):
        return None
    return f"the settings in {file} are in force, not those of `rainbow up`: `export RAINBOW_CONFIG={instance}`"


@contextmanager
def interruptible(ids: Sequence[str]) -> Iterator[None]:
    """On Ctrl-C or at a time limit, say that these jobs go on, and how to end them."""
    try:
        yield
    except (KeyboardInterrupt, TimedOut):
        output.note(_goes_on(ids))
        raise


def _goes_on(ids: Sequence[str]) -> str:
    """Say after Ctrl-C that jobs go on, and how to end them."""
    if len(ids) == 1:
        return f"rainbow: job {ids[0]} goes on: `rainbow attach {ids[0]}` follows it, `rainbow cancel {ids[0]}` ends it"
    return f"rainbow: {len(ids)} jobs go on: `rainbow cancel ID...` ends them"
