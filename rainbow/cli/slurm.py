"""`rainbow-sbatch`, `rainbow-squeue`, `rainbow-scancel`: what workflow tools call of Slurm, and the output they parse.

Slurm's ids are numbers. A job submitted here gets a UUID whose last 60 bits are its number, so that each can be found
by the other and nothing has to be kept.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from uuid import UUID

from rainbow import program
from rainbow.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from rainbow.client import Client, JobFields
    from rainbow.models.job import JobRecord

_PREFIX = 0x7261696E_626F_4000_8000_000000000000
_NUMBER = (1 << 60) - 1
_PENDING = ("PD", "PENDING")
_STATES = {
    "running": ("R", "RUNNING"),
    "completed": ("CD", "COMPLETED"),
    "cancelled": ("CA", "CANCELLED"),
    "lost": ("NF", "NODE_FAIL"),
    "expired": ("DL", "DEADLINE"),
}
_ENDED = ("CD", "F", "CA", "NF", "DL")


def uuid_of(number: str) -> str:
    """Return the id of the job with this number, and of an element with NUMBER_INDEX. Raises InvalidInput."""
    number, _, index = number.partition("_")
    if index.isascii() and index.isdecimal():
        return f"{uuid_of(number)}[{index}]"
    if not number.isascii() or not number.isdecimal() or int(number) > _NUMBER:
        raise InvalidInput(f"Invalid job id {number[:40]}")
    return str(UUID(int=_PREFIX | int(number)))


def number_of(job_id: str) -> str | None:
    """Return the number of a job that was submitted here, None for others."""
    value = UUID(job_id).int
    return str(value & _NUMBER) if value & ~_NUMBER == _PREFIX else None


def states_of(record: JobRecord) -> tuple[str, str]:
    """Return Slurm's short and long word for a job's state."""
    return _STATES.get(record.state, ("F", "FAILED") if record.terminal else _PENDING)


def sbatch() -> None:
    """Submit a batch script: the entry point of `rainbow-sbatch`."""
    program.run("sbatch", lambda: _sbatch(sys.argv[1:]))


def squeue() -> None:
    """List jobs: the entry point of `rainbow-squeue`."""
    program.run("squeue", lambda: _squeue(sys.argv[1:]))


def scancel() -> None:
    """Cancel jobs: the entry point of `rainbow-scancel`."""
    program.run("scancel", lambda: _scancel(sys.argv[1:]))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InvalidInput(message)


def _client() -> Client:
    from rainbow.cli.session import load_settings
    from rainbow.client import Client

    return Client(settings=load_settings(None), name="rainbow-slurm")


def _sbatch(argv: Sequence[str]) -> None:
    from rainbow.scripts import Overrides, read_script
    from rainbow.scripts.slurm import OPTIONS

    words, script = OPTIONS.split(argv)
    if (wrapped := _wrapped(words)) is not None:
        text, name, arguments = f"#!/bin/sh\n{wrapped}\n", "wrap", list[str]()
    elif script:
        text, name, arguments = _text(script[0]), Path(script[0]).name, script[1:]
    else:
        text, name, arguments = sys.stdin.read(), "sbatch", []
    environment = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    job = read_script(text, name, arguments, Overrides(slurm=words))
    system = job.jobspec["attributes"]["system"]
    system["environment"] = environment | system["environment"]
    system.setdefault("cwd", os.getcwd())
    for line in job.refused:
        sys.stderr.write(f"sbatch: {line}\n")
    if job.refused and not (job.lenient or os.environ.get("SBATCH_IGNORE_UNSUPPORTED")):
        raise InvalidInput(f"{len(job.refused)} options have no counterpart: remove them, or add --ignore-unsupported")
    number = str(secrets.randbits(60))
    with _client() as client:
        fields: JobFields = {"id": uuid_of(number), "jobspec": job.jobspec, "name": job.name}
        if job.array:
            fields["array"] = job.array
        if job.clusters:
            fields["clusters"] = job.clusters
        client.submit(**fields)
    sys.stdout.write(f"{number}\n" if "--parsable" in words else f"Submitted batch job {number}\n")


def _wrapped(words: list[str]) -> str | None:
    """The command of ``--wrap``, which is taken out of `words`."""
    for at, word in enumerate(words):
        if word.startswith("--wrap="):
            return words.pop(at).partition("=")[2]
        if word == "--wrap":
            _, command = words.pop(at), words.pop(at)
            return command
    return None


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError as exc:
        raise InvalidInput(f"Unable to open file {path}: {exc.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidInput(f"{path} is not a script") from None


def _squeue(argv: Sequence[str]) -> None:
    parser = _Parser(prog="rainbow-squeue", add_help=False)
    parser.add_argument("-h", "--noheader", action="store_true")
    parser.add_argument("-j", "--jobs", "--job")
    parser.add_argument("-o", "--format", default="%.18i %.9P %.8j %.8u %.2t")
    parser.add_argument("-t", "--states", default="")
    parser.add_argument("-u", "--user")
    parser.add_argument("--me", action="store_true")
    options = parser.parse_args(list(argv))
    with _client() as client:
        if options.jobs:
            ids = [uuid_of(number) for number in options.jobs.split(",")]
            found = client.status(ids)
            if None in found and len(ids) == 1:
                raise NotFound("Invalid job id specified")
            records = [record for record in found if record is not None]
        else:
            records = client.jobs(limit=1000)
    wanted = {word.upper() for word in options.states.split(",") if word}
    if not options.noheader:
        sys.stdout.write(_row(options.format, dict(_HEADERS)) + "\n")
    for record in records:
        number, (short, long) = number_of(record.array or record.id), states_of(record)
        if number is None or (short in _ENDED and not wanted & {"ALL", short, long}):
            continue
        if wanted and not wanted & {"ALL", short, long}:
            continue
        part = record.index if record.array else f"[{record.indices}]" if record.indices else None
        shown = number if part is None else f"{number}_{part}"
        values = {"i": shown, "A": number, "t": short, "T": long, "j": record.name or "", "u": record.user or ""}
        values |= {
            "P": record.cluster or "",
            "N": record.cluster or "",
            "M": "",
            "l": "",
            "D": "",
            "R": record.code or "",
        }
        sys.stdout.write(_row(options.format, values) + "\n")


_HEADERS = {
    "i": "JOBID",
    "A": "JOBID",
    "t": "ST",
    "T": "STATE",
    "j": "NAME",
    "u": "USER",
    "P": "PARTITION",
    "N": "NODELIST",
    "M": "TIME",
    "l": "TIME_LIMIT",
    "D": "NODES",
    "R": "NODELIST(REASON)",
}


def _row(form: str, values: dict[str, str]) -> str:
    def cell(match: re.Match[str]) -> str:
        right, width, code = match.groups()
        if code not in values:
            raise InvalidInput(f"--format: %{code} is not known: use {' '.join(f'%{key}' for key in _HEADERS)}")
        text = values[code]
        if not width:
            return text
        size = int(width)
        # A number that is cut would be that of another job.
        text = text if code in "iA" else text[:size]
        return text.rjust(size) if right else text.ljust(size)

    return re.sub(r"%(\.?)(\d*)([A-Za-z])", cell, form)


def _scancel(argv: Sequence[str]) -> None:
    parser = _Parser(prog="rainbow-scancel", add_help=False)
    parser.add_argument("-Q", "--quiet", action="store_true")
    parser.add_argument("jobs", nargs="+")
    options = parser.parse_args(list(argv))
    ids = [uuid_of(number) for word in options.jobs for number in word.split(",")]
    with _client() as client:
        if None in client.cancel(ids) and not options.quiet:
            raise NotFound("Invalid job id specified")
