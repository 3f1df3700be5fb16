"""How a task is to run beside its resources: duration, folder, environment, gathered from several places."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rainbow.jobspec.durations import read_duration
from rainbow.jobspec.problems import invalid, shown
from rainbow.jobspec.requirements import text_of

_CARRIED = ("queue", "bank", "project")


@dataclass(frozen=True, slots=True)
class Settings:
    """`duration` in seconds, 0 for no limit; `tasks` how many processes in all, None for one in each slot.

    `others` are further system attributes that Flux knows (queue, bank, project).
    """

    duration: float = 0.0
    cwd: str | None = None
    environment: dict[str, str] | None = None
    image: str | None = None
    tasks: int | None = None
    others: dict[str, str] = field(default_factory=dict)


def gather(layers: Iterable[dict[str, Any] | None], whose: str) -> Settings:
    """Settings out of `attributes` mappings, the later ones winning; environments are merged.

    Keys that mean nothing to Flux are passed over, as nextgen leaves attributes free.

    Raises:
        InvalidJobspec: a value that cannot be meant.
    """
    merged: dict[str, Any] = {}
    environment: dict[str, str] | None = None
    for layer in layers:
        if not layer:
            continue
        merged |= {key: value for key, value in layer.items() if value is not None}
        if layer.get("environment") is not None:
            environment = (environment or {}) | _environment(layer["environment"], whose)
    tasks = merged.get("tasks")
    if tasks is not None and (type(tasks) is not int or tasks < 1):
        raise invalid(f"{whose}: attributes.tasks", f"{shown(tasks)} is no number of tasks")
    texts = {key: _text(merged[key], key, whose) for key in ("cwd", "image", *_CARRIED) if key in merged}
    return Settings(
        duration=read_duration(merged["duration"], f"{whose}: attributes.duration") if "duration" in merged else 0.0,
        cwd=texts.get("cwd"),
        environment=environment,
        image=texts.get("image"),
        tasks=tasks,
        others={key: texts[key] for key in _CARRIED if key in texts},
    )


def _text(value: Any, key: str, whose: str) -> str:
    if type(value) is not str or not value or "\0" in value:
        raise invalid(f"{whose}: attributes.{key}", f"text is needed, not {shown(value)}")
    return value


def _environment(value: Any, whose: str) -> dict[str, str]:
    path = f"{whose}: attributes.environment"
    if type(value) is not dict:
        raise invalid(path, f"a mapping of names to texts is needed, not {shown(value)}")
    for name in value:
        if not name or "=" in name or "\0" in name:
            raise invalid(path, f"{shown(name)} is no name of a variable")
    return {name: text_of(text, f"{path}.{name}") for name, text in value.items()}
