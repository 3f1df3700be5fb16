"""rainbow: one place to submit work, many clusters to run it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rainbow.client import Client as Client

__all__ = ["Client"]


def __getattr__(name: str) -> Any:
    # Nothing is imported before it is used: `rainbow --help` must not pay for pika or pydantic.
    if name == "Client":
        from rainbow.client import Client

        return Client
    if name == "__version__":
        from importlib.metadata import version

        return version("rainbow-hpc")
    raise AttributeError(f"module 'rainbow' has no attribute {name!r}")
