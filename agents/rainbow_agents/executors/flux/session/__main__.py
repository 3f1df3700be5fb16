"""``flux python -m session OWNER OPTIONS``: the session as a program, on its standard input and output."""

from __future__ import annotations

import sys

from .service import main

if __name__ == "__main__":
    main(0, 1, sys.argv[1], sys.argv[2])
