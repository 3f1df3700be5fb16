"""Options that describe a job, of `rainbow submit` and `rainbow batch`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rainbow.cli import completion

Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[COMMAND...]", help="What to run, with its arguments.", show_default=False),
]
NodeCount = Annotated[int | None, typer.Option("-N", "--nodes", min=1, help="Nodes.", show_default=False)]
Tasks = Annotated[int | None, typer.Option("-n", "--tasks", min=1, help="Tasks.", show_default=False)]
Cores = Annotated[
    int | None, typer.Option("-c", "--cores-per-task", min=1, help="Cores for each task.", show_default=False)
]
Gpus = Annotated[
    int | None, typer.Option("-g", "--gpus-per-task", min=0, help="GPUs for each task.", show_default=False)
]
Duration = Annotated[
    str | None,
    typer.Option(
        "-t", "--duration", metavar="TIME", help="Time limit: minutes, 30s, 1h30m, HH:MM:SS, D-HH:MM:SS (0: none)."
    ),
]
Name = Annotated[str | None, typer.Option("--name", help="Name of the job.")]
Account = Annotated[
    str | None, typer.Option("-A", "--account", help="Charge the job to this account, one that your token covers.")
]
Cwd = Annotated[str | None, typer.Option("--cwd", metavar="DIR", help="Working directory, on the cluster.")]
Env = Annotated[list[str] | None, typer.Option("--env", metavar="KEY=VALUE", help="Environment; may be repeated.")]
Image = Annotated[
    str | None,
    typer.Option("--image", help="Container image; what it needs (`rainbow compat`) is asked of the cluster."),
]
Requires = Annotated[
    list[str] | None,
    typer.Option(
        "--requires",
        metavar="name=S,field=F,match=V",
        help="A need of subsystem S (also min=, max=); may be repeated.",
    ),
]
JobspecFile = Annotated[
    str | None,
    typer.Option(
        "--jobspec", metavar="FILE", help="Jobspec in place of a command and its options; - reads standard input."
    ),
]
ScriptFile = Annotated[
    Path | None,
    typer.Option("--script", metavar="FILE", help="Batch script with directives (- for standard input)."),
]
Directive = Annotated[
    list[str] | None,
    typer.Option("--directive", metavar="OPTION", help="Option of `flux batch` for the script; may be repeated."),
]
Dialect = Annotated[
    str | None,
    typer.Option("--directives", metavar="DIALECT", help="Read these directives: flux, slurm, pbs or lsf."),
]
IgnoreUnsupported = Annotated[
    bool, typer.Option("--ignore-unsupported", help="Submit although directives have no counterpart.")
]
Match = Annotated[str | None, typer.Option("--match", metavar="NAME", help="Match algorithm.")]
Select = Annotated[
    str | None,
    typer.Option("--select", metavar="NAME", help="Selection algorithm.", autocompletion=completion.selections),
]
SelectOption = Annotated[
    list[str] | None,
    typer.Option("--select-option", metavar="KEY=VALUE", help="Option of the selection; may be repeated."),
]
Hold = Annotated[
    float, typer.Option("--hold", min=0, metavar="SECONDS", help="Wait so long for a cluster that can take it.")
]
Priority = Annotated[int | None, typer.Option("--priority", min=1, max=31, help="1 to 31, 16 if left out.")]
Expires = Annotated[
    str | None,
    typer.Option("--expires", metavar="WHEN", help="Drop if not assigned by then (RFC 3339, or seconds since 1970)."),
]
Dependency = Annotated[
    list[str] | None,
    typer.Option(
        "--dependency",
        metavar="afterok:ID",
        help="Wait for a job (also after:, afterany:, afternotok:; comma between several); may be repeated.",
    ),
]
BeginTime = Annotated[
    str | None,
    typer.Option("--begin-time", metavar="WHEN", help="Do not start before (+5m, RFC 3339, or seconds since 1970)."),
]
Array = Annotated[
    str | None,
    typer.Option(
        "--array",
        "-a",
        metavar="INDICES",
        help="A job for each index: 1-100, 1,3,5-9, 0-15:4; with %N at most N of them at a time.",
    ),
]
StageIn = Annotated[
    list[str] | None,
    typer.Option(
        "--stage-in", metavar="FILE[:PATH]", help="File that the job finds in its working directory; may be repeated."
    ),
]
StageOut = Annotated[
    list[str] | None,
    typer.Option(
        "--stage-out", metavar="PATH", help="What the job leaves there, for `rainbow fetch` or --wait; may be repeated."
    ),
]
Id = Annotated[str | None, typer.Option("--id", metavar="UUID", help="Id of the job: the same again runs it once.")]
SatisfyOnly = Annotated[
    bool, typer.Option("--satisfy-only", help="Only say which clusters could run it; nothing is submitted.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the jobspec as JSON; nothing is submitted.")]
Wait = Annotated[bool, typer.Option("--wait", help="Print its output as it comes, and end with its exit code.")]
