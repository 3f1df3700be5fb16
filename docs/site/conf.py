"""Sphinx settings of the documentation site: `make docs` builds `build/docs`."""

from __future__ import annotations

from importlib.metadata import version as installed
from typing import Any

from pygments.lexers.special import TextLexer

project = "rainbow"
release = version = installed("rainbow-hpc")
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["site/README.md"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = f"rainbow {release}"
html_static_path: list[str] = []
html_copy_source = False
html_show_sphinx = False
nitpicky = True
linkcheck_timeout = 15
linkcheck_ignore = [r"http://(127\.0\.0\.1|localhost)"]


def setup(app: Any) -> None:
    """Show diagrams as their text: drawing them would load a script from another server."""
    app.add_lexer("mermaid", TextLexer)
