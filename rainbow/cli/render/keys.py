"""Keys of the terminal, as they are pressed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Ctrl-D, which also stands for the end of standard input.
_END = "\x04"


@contextmanager
def pressed() -> Iterator[Callable[[float], str]]:
    """A function that waits for a key, so many seconds at most; empty text when none came.

    Where standard input is no terminal, there are no keys.
    """
    if not sys.stdin.isatty():
        yield _none
        return
    import os
    import select
    import termios
    import tty

    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)

    def key(seconds: float) -> str:
        ready, _, _ = select.select([number], [], [], seconds)
        return (os.read(number, 1).decode("latin-1") or _END) if ready else ""

    tty.setcbreak(number)
    try:
        yield key
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def _none(seconds: float) -> str:
    time.sleep(seconds)
    return ""
