"""The contract of a source of artifacts: entry points `rainbow.artifacts`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

Origin = Literal["artifact", "annotation", "platform", "preference"]


@dataclass(frozen=True, slots=True)
class Statement:
    """One attribute of an image, as it is published. `origin` says where it stands."""

    attribute: str
    value: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """All that is published about one image. `where` is for people."""

    where: str
    statements: tuple[Statement, ...]


class Source(Protocol):
    """A plugin: a class made with a mapping of options (InvalidInput for wrong ones), and this method."""

    def find(self, image: str) -> ImageFacts | None:
        """What is published about `image`; None when this source does not have it.

        Raises:
            InvalidInput: It has the image, and what it has is damaged or too large.
            Unavailable: It cannot be asked now.
        """
