"""Names of images: ``[HOST/]PATH[:TAG][@DIGEST]``, as the OCI distribution specification has them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rainbow.errors import InvalidInput

_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_NAME = re.compile(
    rf"(?:(?P<host>localhost(?::[0-9]+)?|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+(?::[0-9]+)?|[A-Za-z0-9-]+:[0-9]+)/)?"
    rf"(?P<path>{_COMPONENT}(?:/{_COMPONENT})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?"
    r"(?:@(?P<digest>sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}))?"
)
_SCHEME = re.compile(r"(?:docker|oras|oci)://|docker:")


@dataclass(frozen=True, slots=True)
class Reference:
    """A name in parts. `tag` is None when only a digest is given."""

    host: str | None
    path: str
    tag: str | None
    digest: str | None

    @property
    def name(self) -> str:
        """With its host, without tag and digest."""
        return f"{self.host}/{self.path}" if self.host else self.path

    @property
    def wanted(self) -> str:
        """What to ask for: the digest, else the tag."""
        return self.digest or self.tag or "latest"


def parse(image: str) -> Reference:
    """Raises InvalidInput."""
    found = _NAME.fullmatch(_SCHEME.sub("", image.strip(), count=1)) if len(image) <= 512 else None
    if found is None:
        raise InvalidInput(f"{image[:80]!r} is no name of an image: write [HOST/]PATH[:TAG][@DIGEST]")
    tag = found["tag"] or (None if found["digest"] else "latest")
    return Reference(found["host"], found["path"], tag, found["digest"])
