"""Who has jobs that wait and run."""

from __future__ import annotations

from rainbow.cli.options import Config, Json, Limit, Token
from rainbow.cli.render import output
from rainbow.cli.session import client


def queue(as_json: Json = False, config: Config = None, token: Token = None, timeout: Limit = 30.0) -> None:
    """Show users with their accounts: share, usage, and jobs that wait and run. Without an admin's token, your own.

    A job counts as running from when it is assigned to a cluster. `rainbow shares` has the weights and limits.

    \b
    Example:
      rainbow queue
    """
    with client(config, token, timeout) as rainbow:
        found = rainbow.queue()
    if as_json:
        output.document(found)
        return
    rows = [
        (
            row["account"],
            row["user"],
            f"{100 * row['share']:.1f} %",
            f"{100 * row['usage']:.1f} %",
            row["waiting"],
            row["running"],
        )
        for row in found["users"]
    ]
    output.table(("account", "user", "share", "usage", "waiting", "running"), rows, empty="no jobs lately")
    totals = found["totals"]
    output.note(f"{totals['waiting']} waiting and {totals['running']} running in all")
