"""What the long-running programs share: an error ends them with one line, without secrets, and an exit code."""

from __future__ import annotations

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
        # Nobody foresaw it: the log has where, whoever starts us again needs a code.
        log.exception("ended", extra={"action": "crash"})
        _leave(name, f"ended by {type(exc).__name__}: {exc}", 1)


def _leave(name: str, text: str, code: int) -> None:
    print(f"{name}: {redact(text)}", file=sys.stderr)  # noqa: T201
    raise SystemExit(code) from None
