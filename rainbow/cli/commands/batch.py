"""Submit a batch script: `rainbow submit --script` under the name that Flux and Slurm have for it."""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import Any

from rainbow.cli.commands.submit import submit


@wraps(submit, assigned=("__annotations__",))
def batch(command: list[str] | None = None, *, script: Path | None = None, **options: Any) -> None:
    """Submit a batch script, with its arguments; without one it is read from standard input.

    Directives of Flux (#flux:), Slurm (#SBATCH), PBS (#PBS) and LSF (#BSUB) in the script are read; options of this
    command beat them. A directive without a counterpart is named, and nothing is submitted, unless
    --ignore-unsupported is given.

    \b
    Examples:
      rainbow batch job.sh
      rainbow batch -N 4 -t 2h job.sh input.dat
      rainbow batch --dry-run < job.sh
    """
    name, *arguments = [str(script), *(command or [])] if script is not None else command or ["-"]
    submit(arguments or None, script=Path(name), **options)
