"""``key=value`` words, with typed values."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rainbow.errors import InvalidInput


def pairs(words: Iterable[str], option: str) -> dict[str, str]:
    """``a=b`` words as a mapping. Raises InvalidInput naming the word."""
    found: dict[str, str] = {}
    for word in words:
        key, separator, value = word.partition("=")
        if not separator or not key:
            raise InvalidInput(f"{option} {word!r}: write it as KEY=VALUE")
        found[key] = value
    return found


def uuid(text: str, option: str) -> str:
    """A UUID as it was written. Raises InvalidInput naming the option."""
    from uuid import UUID

    try:
        UUID(text)
    except ValueError:
        raise InvalidInput(f"{option} {text!r} is not a UUID") from None
    return text


def typed(text: str) -> bool | int | float | str:
    """``true`` and ``false``, whole and other finite numbers, else text; in quotes always text."""
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if abs(value) != float("inf") and value == value:
            return value
    return text


def seconds(text: str, option: str) -> float:
    """A length of time (``90``, ``30s``, ``12h``, ``30d``) in seconds. Raises InvalidInput naming the option."""
    from rainbow.jobspec.durations import read_duration

    try:
        return read_duration(text)
    except InvalidInput:
        raise InvalidInput(f"{option} {text!r} is no length of time: write 90, 30s, 10m, 12h or 30d") from None


def moment(text: str, option: str) -> float:
    """A time in seconds since 1970: such a number, RFC 3339 text, or ``+5m`` from now. Without a zone it is local time.

    Raises InvalidInput naming the option."""
    from datetime import datetime

    if text.startswith("+"):
        return datetime.now().timestamp() + seconds(text[1:], option)
    value = typed(text)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError):
        raise InvalidInput(f"{option} {text!r} is no time: write 2026-05-01T12:00:00 or seconds since 1970") from None


def text_of_stdin(option: str) -> str:
    """All of standard input. Raises InvalidInput naming the option it stands in for."""
    try:
        text = sys.stdin.read() if sys.stdin is not None else ""
    except UnicodeDecodeError:
        raise InvalidInput(f"{option} -: standard input is not text") from None
    if not text.strip():
        raise InvalidInput(f"{option} -: standard input is empty")
    return text


def time_limit(text: str, option: str) -> float:
    """A time limit in seconds, as Slurm and Flux write it: a bare number is minutes. Raises InvalidInput naming the
    option."""
    from rainbow.jobspec.durations import read_time_limit

    try:
        return read_time_limit(text)
    except InvalidInput:
        raise InvalidInput(
            f"{option} {text!r} is no time limit: write minutes, or 30s, 1h30m, HH:MM:SS, D-HH:MM:SS"
        ) from None


def flat_file(path: Path) -> dict[str, Any]:
    """A file of flat keys and values (JSON or YAML; ``-`` is standard input). Raises InvalidInput."""
    import yaml

    try:
        data = yaml.safe_load(text_of_stdin("--file") if str(path) == "-" else path.read_text())
    except (OSError, UnicodeDecodeError) as exc:
        raise InvalidInput(f"{path}: {getattr(exc, 'strerror', None) or 'not UTF-8 text'}") from None
    except (yaml.YAMLError, RecursionError):
        raise InvalidInput(f"{path} is neither JSON nor YAML") from None
    if not isinstance(data, dict):
        raise InvalidInput(f"{path} must hold keys and values")
    for key, value in data.items():
        if not isinstance(key, str) or not isinstance(value, bool | int | float | str):
            raise InvalidInput(f"{path}: the value of {key!r} must be a number, text, true or false")
    return data
