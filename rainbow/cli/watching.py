"""``--watch``: a list that is drawn again every few seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import sleep as pause
from typing import Annotated

import typer

from rainbow.cli.render import output

Watch = Annotated[
    float | None,
    typer.Option("--watch", "-w", min=0.2, metavar="SECONDS", help="Show it again every so often; Ctrl-C ends it."),
]


def repeated(draw: Callable[[], None], every: float | None) -> None:
    """Call `draw` once, or with `every` again and again until Ctrl-C. A terminal is cleared before."""
    if every is None:
        draw()
        return
    try:
        while output.failure.get() is None:
            if sys.stdout is not None and sys.stdout.isatty():
                output.text_out("\033[2J\033[H")
            draw()
            pause(every)
    except KeyboardInterrupt:
        return


__all__ = ["Watch", "repeated"]
