"""Writes the generated pages of docs/reference: ``python docs/generate.py``. A test says when they are out of date."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from generators import access, asyncapi, cli, errors, flux_options, metrics, openapi, plugins, python, schemas, settings

PAGES: Mapping[str, Callable[[], str]] = {
    "access.md": access.render,
    "asyncapi.yaml": asyncapi.render,
    "cli.md": cli.render,
    "settings.md": settings.render,
    "errors.md": errors.render,
    "http-api.md": openapi.page,
    "metrics.md": metrics.render,
    "openapi.yaml": openapi.render,
    "flux-options.md": flux_options.render,
    "plugins.md": plugins.render,
    "python.md": python.render,
}


def main() -> None:
    docs = Path(__file__).parent
    for name, make in PAGES.items():
        (docs / "reference" / name).write_text(make())
    for name in schemas.SCHEMAS:
        (docs.parent / "rainbow" / "schemas" / f"{name}.json").write_text(schemas.schema(name))
    print(json.dumps(sorted(PAGES)))  # noqa: T201


if __name__ == "__main__":
    main()
