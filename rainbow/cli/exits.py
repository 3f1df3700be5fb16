"""The one place that turns what happens into an exit code and, when it went wrong, one plain line.

0 done; 1 the job was refused, failed or unplaceable; 2 wrong use; 3 denied; 4 broker or store out of reach;
5 no such thing; 124 timed out; 130 interrupted; 141 the reader of our output went away. ``rainbow submit --wait`` and
``rainbow attach`` end with the exit code of the job.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer

from rainbow import tracing
from rainbow.cli.render import output
from rainbow.errors import RainbowError

#: The base of typer's errors of wrong use, wherever the installed release keeps it.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]
_INTERRUPTED = 130
_PIPE = 141


def run(args: Sequence[str] | None = None) -> int:
    """Run the command line with `args` (those of the process if None) and return the exit code."""
    tracing.start("rainbow")
    json_before = output.as_json.set(False)
    failure_before = output.failure.set(None)
    rescued_before = output.rescued.set(False)
    try:
        return _reported(_run(args))
    finally:
        output.as_json.reset(json_before)
        output.failure.reset(failure_before)
        output.rescued.reset(rescued_before)


def _run(args: Sequence[str] | None) -> int:
    from rainbow.cli.app import command

    try:
        try:
            code = command().main(args, prog_name="rainbow", standalone_mode=False)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        return _pipe()
    except SystemExit as exc:  # typer's own answer to a broken pipe; also the end of shell completion
        if isinstance(exc.__context__, BrokenPipeError):
            return _pipe()
        raise
    except (KeyboardInterrupt, typer.Abort):
        return _INTERRUPTED
    except Exception as exc:
        if os.environ.get("RAINBOW_DEBUG") and sys.stderr is not None:
            import traceback

            from rainbow.logs import redact

            sys.stderr.write(redact(traceback.format_exc()))
        try:
            return _failed(exc)
        except BrokenPipeError:
            return _pipe()
    return code if isinstance(code, int) else 0


def _reported(code: int) -> int:
    """Report output that could not be written."""
    why = output.failure.get()
    if why is None:
        return code
    output.note(f"rainbow: standard output cannot be written: {why}")
    return code if output.rescued.get() else code or 1


def _pipe() -> int:
    output.drop()
    return _PIPE


def _failed(exc: Exception) -> int:
    if isinstance(exc, RainbowError):
        return _say(exc.code, str(exc), exc.exit_code)
    if isinstance(exc, _UsageError):
        from rainbow.program import usage

        return _say("usage", usage(exc, "rainbow"), 2)
    if isinstance(exc, OSError) and exc.filename is not None:
        return _say("invalid", f"{exc.filename}: {exc.strerror}", 2)
    if isinstance(exc, OSError) and exc.errno is not None:
        return _say("error", str(exc.strerror), 1)
    text = f"unexpected {type(exc).__name__}: {exc}" if str(exc) else f"unexpected {type(exc).__name__}"
    return _say("error", f"{text} (this is a bug; RAINBOW_DEBUG=1 shows where)", 1)


def _say(code: str, message: str, exit_code: int) -> int:
    from rainbow.logs import redact

    text = redact(" ".join(message.split()))
    output.note(f"rainbow: {text}")
    if output.as_json.get():
        output.document({"error": {"code": code, "message": text}})
    return exit_code
