"""What container images need, found out from what is published beside them.

In comes the name of an image; out come the needs that a job carries (`rainbow.jobspec.compatibility`). Sources are
plugins (entry points `rainbow.artifacts`). Used by the command line, on the submitter's side.
"""

from __future__ import annotations

from rainbow.artifacts.base import ImageFacts, Source, Statement
from rainbow.artifacts.needs import DEFAULT_POLICY, needs_of
from rainbow.artifacts.resolve import resolve

__all__ = ["DEFAULT_POLICY", "ImageFacts", "Source", "Statement", "needs_of", "resolve"]
