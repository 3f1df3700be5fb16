"""Logging for the programs: one line per event with its fields, as text or JSON, to stderr; never a secret.

Log calls carry fields in `extra`, an `action` among them (``log.info("job assigned", extra={"action": "assign"})``):
one line per job and stage is its history.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

#: A password in a URL (which may hold any character, if only by a slip), one among its options, a bearer header, and
#: anything shaped like a JWT. Bounded, so that no text takes longer than its length: strangers write some of it.
_SECRETS = re.compile(
    r"(?P<url>\b[a-z][a-z0-9+.-]{0,40}://[^\s:/@\"]{0,256}):[^\s\"]{1,512}@"
    r"|(?P<option>[?&](?:password|secret|token)=)[^\s&\"]+"
    r"|\b(?P<bearer>[Bb]earer)\s+[^\s\"]+"
    r"|eyJ[A-Za-z0-9_-]{8,512}+\.[A-Za-z0-9_-]+\.?[A-Za-z0-9_-]*"
)


#: Secrets that this process was started with (see `setup`), the longest first.
_known: tuple[str, ...] = ()
#: What is shorter is more likely part of the text than a secret in it.
_SHORTEST = 8


def redact(text: str) -> str:
    """`text` with what is known to be a secret, and whatever looks like one, taken out.

    The last fence: nothing should reach it.
    """
    for secret in _known:
        if secret in text:
            text = text.replace(secret, "***")

    def replace(found: re.Match[str]) -> str:
        if found["url"]:
            return f"{found['url']}:***@"
        if found["option"]:
            return f"{found['option']}***"
        return f"{found['bearer']} ***" if found["bearer"] else "***"

    return _SECRETS.sub(replace, text)


def printable(text: str, keep: str = "") -> str:
    """`text` with escapes in place of control characters, but for those in `keep`.

    Text of others must neither move the cursor of a terminal, nor begin a line of its own in a log.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {k: v for k, v in vars(record).items() if k not in _STANDARD and not k.startswith("_")}


class TextFormatter(logging.Formatter):
    """One line of text for each record."""

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        fields = "".join(f" {k}={v}" for k, v in _fields(record).items())
        line = printable(f"{stamp} {record.levelname.lower():7} {record.name}: {record.getMessage()}{fields}")
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return redact(line)


class JsonFormatter(logging.Formatter):
    """One JSON object on a line for each record."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return redact(json.dumps(entry, default=str, ensure_ascii=False))


def setup(level: str = "info", style: str = "text", secrets: Iterable[str] = ()) -> None:
    """Configure logging of this process: called by a program's `cli`, never by a library module.

    `secrets` are never shown, in whichever words.
    """
    global _known
    _known = tuple(sorted({s for s in secrets if len(s) >= _SHORTEST}, key=len, reverse=True))
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for noisy in ("kombu", "amqp"):  # pika is silenced by its plugin
        logging.getLogger(noisy).setLevel(logging.ERROR)
    # Unforeseen errors go to the log too, and so without secrets.
    sys.excepthook = _unforeseen
    threading.excepthook = lambda args: _unforeseen(args.exc_type, args.exc_value, args.exc_traceback)
    logging.captureWarnings(True)


def _unforeseen(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt | SystemExit):
        return
    known = (kind, error or kind(), trace)
    logging.getLogger("rainbow").critical("unforeseen %s", kind.__name__, exc_info=known, extra={"action": "crash"})
