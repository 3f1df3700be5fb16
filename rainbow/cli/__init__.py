"""The `rainbow` program. Everything heavy is imported by the command that needs it."""

from __future__ import annotations


def main() -> None:
    """Run the command line and leave the process with its exit code."""
    try:
        from rainbow.cli.exits import run

        code = run()
    except KeyboardInterrupt:  # while the program itself was still being read
        code = 130
    raise SystemExit(code)
