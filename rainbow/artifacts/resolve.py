"""Ask the sources in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from rainbow import plugins
from rainbow.artifacts.base import ImageFacts, Source
from rainbow.artifacts.folder import read_file

GROUP = "rainbow.artifacts"


def resolve(image: str, sources: Sequence[tuple[str, Mapping[str, Any]]]) -> ImageFacts | None:
    """What the first source that has `image` says about it; None when none has it.

    Args:
        image: Its name, or the path of a compatibility document (``....json``).
        sources: Plugins of the group `rainbow.artifacts`, with their options.

    Raises:
        UnknownPlugin: no such source.
        InvalidInput: no name of an image, wrong options, or what is there is damaged.
        Unavailable: a source cannot be asked.
    """
    if image.endswith(".json"):
        return read_file(Path(image))
    for name, options in sources:
        found = cast(Source, plugins.load(GROUP, name)(options)).find(image)
        if found is not None:
            return found
    return None
