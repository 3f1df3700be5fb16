"""Values of options as Flux writes them: assignments, attached files, limits, configuration."""

from __future__ import annotations

import base64
import json
import os
import resource
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rainbow.errors import InvalidInput, TooLarge

MAX_FILE = 1 << 20
"""Bytes of a file that travels inside a jobspec."""

_MAX_COUNT = 1 << 30


def count(text: str, option: str, least: int = 1) -> int:
    """A whole number. Raises InvalidInput naming the option."""
    if not text.isascii() or not text.isdecimal() or not least <= int(text) <= _MAX_COUNT:
        raise InvalidInput(f"{option}={text}: write a whole number from {least} up")
    return int(text)


def text_of(path: str, option: str) -> str:
    """The text of a file. Raises InvalidInput, TooLarge."""
    try:
        return bytes_of(path, option).decode()
    except UnicodeDecodeError:
        raise InvalidInput(f"{option}: {path} is not UTF-8 text") from None


def bytes_of(path: str, option: str) -> bytes:
    """What is in a regular file of at most `MAX_FILE` bytes. Raises InvalidInput, TooLarge."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_FILE + 1)
    except OSError as exc:
        raise InvalidInput(f"{option}: {path}: {exc.strerror}") from None
    if len(data) > MAX_FILE:
        raise TooLarge(f"{option}: {path} has more than {MAX_FILE} bytes: a job carries small files only")
    return data


def assignment(option: str, text: str) -> tuple[str, Any]:
    """``KEY[=VALUE]`` with VALUE as JSON if it is some (1 if left out); ``^KEY=FILE`` reads JSON from a file."""
    key, separator, value = text.partition("=")
    if key.startswith("^"):
        try:
            return key[1:], json.loads(text_of(value, option))
        except ValueError:
            raise InvalidInput(f"{option}={text}: {value} is not JSON") from None
    if not key:
        raise InvalidInput(f"{option}={text}: write KEY=VALUE")
    try:
        return key, json.loads(value) if separator else 1
    except ValueError:
        return key, value


def put(tree: dict[str, Any], key: str, value: Any) -> None:
    """Set ``a.b.c`` in nested mappings. Raises InvalidInput where something else is in the way."""
    *path, last = key.split(".")
    for name in path:
        tree = tree.setdefault(name, {})
        if not isinstance(tree, dict):
            raise InvalidInput(f"{key}: {name} holds a value already")
    if not last:
        raise InvalidInput(f"{key}: write the name of an attribute")
    tree[last] = value


def entry(data: bytes, mode: int) -> dict[str, Any]:
    """A file as a jobspec carries it (RFC 37)."""
    try:
        return {"mode": mode, "encoding": "utf-8", "data": data.decode()}
    except UnicodeDecodeError:
        return {"mode": mode, "encoding": "base64", "data": base64.b64encode(data).decode()}


def attached(text: str) -> tuple[str, dict[str, Any]]:
    r"""``[NAME[:MODE]=]PATH``, or ``NAME[:MODE]=LINES`` with at least one newline (also written ``\n``)."""
    name, separator, data = text.replace("\\n", "\n").partition("=")
    mode: int | None = None
    if not separator:
        name, data = os.path.basename(name), name
    elif ":" in name:
        stem, _, octal = name.rpartition(":")
        if octal and set(octal) <= set("01234567"):
            name, mode = stem, int(octal, 8)
    if not name or "/" in name or name in (".", "..", "script"):
        raise InvalidInput(f"--add-file={text}: write NAME=PATH with a name of its own")
    if "\n" in data:
        return name, entry(data.encode(), 0o100000 | (mode if mode is not None else 0o600))
    content = bytes_of(data, "--add-file")
    permissions = mode if mode is not None else Path(data).stat().st_mode & 0o777
    return name, {**entry(content, 0o100000 | permissions), "size": len(content)}


def limits(rules: Iterable[str]) -> dict[str, int]:
    """``NAME=VALUE`` limits of resources. Those of the submitter's machine are not carried over."""
    made: dict[str, int] = {}
    for rule in rules:
        name, separator, value = rule.partition("=")
        if rule.startswith("-"):
            continue  # nothing is carried over that could be left out
        if not separator or not hasattr(resource, f"RLIMIT_{name.upper()}"):
            raise InvalidInput(f"--rlimit={rule}: write NAME=VALUE, as nofile=4096; limits here are not carried over")
        unlimited = value in ("unlimited", "infinity", "inf")
        made[name.lower()] = -1 if unlimited else count(value, f"--rlimit={name}", 0)
    return made


def configuration(texts: Sequence[str]) -> Any:
    """A broker's configuration from ``KEY=VALUE``, JSON or TOML texts, or names of such files; later ones win."""
    made: dict[str, Any] = {}
    for text in texts:
        if "\n" not in text and "=" not in text and not text.startswith("{"):
            text = text_of(text, "--conf")
        try:
            loaded = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
        except ValueError:
            raise InvalidInput(f"--conf: {text[:40]!r} is neither JSON nor TOML") from None
        _merge(made, loaded)
    return made


def _merge(into: dict[str, Any], more: dict[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value
