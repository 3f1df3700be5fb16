"""What the long-running programs share: an error ends them with one line, without secrets, and an exit code."""

from __future__ import annotations

import gc
import logging
import re
import sys
from collections.abc import Callable

from rainbow import tracing
from rainbow.errors import RainbowError
from rainbow.logs import redact

log = logging.getLogger(__name__)


def run(name: str, program: Callable[[], object]) -> None:
    """Call `program`, and leave with the exit code that it returns or that its error stands for. SystemExit passes."""
    tracing.start(name)
    try:
        code = program()
    except RainbowError as exc:
        _leave(name, exc.message, exc.exit_code)
    except Exception as exc:
        if hasattr(exc, "format_message"):  # the command line library's: wrong use
            _leave(name, usage(exc, name), 2)
        # An unforeseen error: the log has the traceback, and the process supervisor needs an exit code.
        log.exception("ended", extra={"action": "crash"})
        _leave(name, f"ended by {type(exc).__name__}: {exc}", 1)
    if isinstance(code, int) and code:
        raise SystemExit(code)


def usage(exc: Exception, program: str) -> str:
    """Return the line for an error of wrong use of a command line."""
    message = str(getattr(exc, "format_message", exc.__str__)()).strip().rstrip(".")
    message = message.removeprefix("Invalid value: ").replace(" Value error, ", " ")
    for theirs, ours in _WORDS:
        message = re.sub(theirs, ours, message)
    path = getattr(getattr(exc, "ctx", None), "command_path", None) or program
    return f"{message[:1].lower()}{message[1:]} (see `{path} --help`)"


#: What the libraries say, and what we say.
_WORDS = (
    (r"Input should be a valid integer.*", "must be a whole number"),
    (r"Input should be a valid number.*", "must be a number"),
    (r"Input should be greater than or equal to (\S+)", r"must be at least \1"),
    (r"Input should be less than or equal to (\S+)", r"must be at most \1"),
    (r"Input should be greater than (\S+)", r"must be more than \1"),
    (r"Input should be a valid UUID.*", "must be a UUID"),
)


def up() -> None:
    """To be called once a program is set up.

    What it has by then is there to stay: the collector looks through it no more; and it runs less often, since a batch
    of messages makes thousands of objects, and none in circles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    # Of the threads, the broker's waits for the interpreter each time it has read: Python's 5 ms are longer than it
    # takes RabbitMQ to confirm a batch.
    sys.setswitchinterval(0.0005)


def _leave(name: str, text: str, code: int) -> None:
    print(f"{name}: {redact(text)}", file=sys.stderr)  # noqa: T201
    raise SystemExit(code) from None
