"""What an image needs, for the commands that take one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rainbow.cli.render import output
from rainbow.cli.session import load_settings
from rainbow.errors import InvalidInput

if TYPE_CHECKING:
    from rainbow.settings import Settings

_WITH_PLATFORM = ("layout", "registry")


def needs_of_image(image: str, settings: Settings) -> tuple[str, list[dict[str, Any]]] | None:
    """Where the needs of `image` stand, and what they are; None when no source has it.

    Raises:
        InvalidInput: what is there cannot be read.
        Unavailable: a source cannot be asked.
    """
    from rainbow.artifacts import needs_of, resolve

    wanted = settings.compatibility
    platform = {"platform": wanted.platform} if wanted.platform else {}
    sources = [
        (source.name, {**(platform if source.name in _WITH_PLATFORM else {}), **source.options})
        for source in wanted.sources
    ]
    facts = resolve(image, sources)
    return None if facts is None else (facts.where, needs_of(facts, wanted.policy))


def with_needs_of(image: str, fields: Mapping[str, Any], config: Path | None) -> dict[str, Any]:
    """`fields` of a submission, with what `image` needs if a source of the settings has it."""
    settings = load_settings(config)
    if not settings.compatibility.sources and not settings.compatibility.required:
        return dict(fields)
    found = needs_of_image(image, settings)
    if found is None:
        why = f"no source of compatibility.sources has image {image}"
        if settings.compatibility.required:
            raise InvalidInput(f"{why}, and compatibility.required is set")
        output.note(f"rainbow: {why}: it is only carried to the cluster")
        return dict(fields)
    return {**fields, "compatibility": found[1]} if found[1] else dict(fields)
