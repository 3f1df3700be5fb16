"""What the long-running programs share: an error ends them with one line, without secrets, and an exit code."""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Callable

from rainbow.errors import RainbowError
from rainbow.logs import redact

log = logging.getLogger(__name__)


def run(name: str, program: Callable[[], object]) -> None:
    """Call `program`, and leave with the exit code that what it raises stands for. SystemExit passes."""
    try:
        program()
    except RainbowError as exc:
        _leave(name, exc.message, exc.exit_code)
    except Exception as exc:
        # An unforeseen error: the log has the traceback, and the process supervisor needs an exit code.
        log.exception("ended", extra={"action": "crash"})
        _leave(name, f"ended by {type(exc).__name__}: {exc}", 1)


def up() -> None:
    """To be called once a program is set up.

    What it has by then is there to stay: the collector looks through it no more; and it runs less often, since a batch
    of messages makes thousands of objects, and none in circles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def _leave(name: str, text: str, code: int) -> None:
    print(f"{name}: {redact(text)}", file=sys.stderr)  # noqa: T201
    raise SystemExit(code) from None
