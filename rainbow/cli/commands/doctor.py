"""Check everything this machine has to do with, and say what to do about what is wrong."""

from __future__ import annotations

import typer

from rainbow.cli.options import Config, Json
from rainbow.cli.render import output


def doctor(as_json: Json = False, config: Config = None) -> None:
    """Check settings, broker, queues, store, keys, tokens, registrar, Flux and versions; a line each.

    What this machine does not need (the store and the keys where one only submits) is said and passed over. Exit 0
    when all is well, 4 when broker or store cannot be reached, 1 for any other problem.

    \b
    Example:
      rainbow doctor
    """
    from rainbow.cli.commands.checks import run

    checks = run(config)
    problems = [check for check in checks if check.ok is False]
    code = 4 if any(check.unreachable for check in problems) else 1 if problems else 0
    if as_json:
        output.document({"ok": not problems, "checks": [check.plain() for check in checks]})
    else:
        rows = [(check.word, check.name, check.detail, check.advice or "") for check in checks]
        output.table(("result", "what", "found", "what to do"), rows, empty="", styled=("result",))
    raise typer.Exit(code)
