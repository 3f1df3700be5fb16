"""``python -m rainbow.cli`` is ``rainbow``."""

from rainbow.cli import main

main()
