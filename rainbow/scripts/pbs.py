"""``#PBS`` options (PBS Professional and Torque), in terms of Flux's, as far as they map."""

from __future__ import annotations

from rainbow.errors import InvalidInput
from rainbow.scripts.slurm import seconds_of
from rainbow.scripts.translation import (
    NO_EXPORT,
    NO_MAIL,
    NO_MEMORY,
    NO_SITE,
    Table,
    Translation,
    Unsupported,
    array,
    dependency,
    ignored,
    refused,
    word,
)
from rainbow.scripts.values import count


def _walltime(made: Translation, value: str) -> None:
    # A lone number is seconds here, minutes in Slurm.
    seconds = count(value, "walltime", 0) if value.isdecimal() else seconds_of(value)
    made.words.append(f"--time-limit={seconds}s")


def _resources(made: Translation, value: str) -> None:
    for item in value.split(","):
        name, _, text = item.partition("=")
        if name == "walltime":
            _walltime(made, text)
        elif name in ("select", "nodes"):
            _chunk(made, text)
        elif name == "ncpus":
            made.resources.cores_per_task = count(text, "ncpus")
        elif name == "place":
            _place(made, text)
        elif name in ("mem", "pmem", "vmem", "pvmem"):
            made.refused.append(f"-l {item}: {NO_MEMORY}")
        else:
            made.refused.append(f"-l {item}: {NO_SITE}")


def _chunk(made: Translation, text: str) -> None:
    if "+" in text:
        raise Unsupported("chunks of several kinds: ask for one kind of node")
    number, *parts = text.split(":")
    asked = made.resources
    asked.nodes = count(number, "nodes")
    each: dict[str, int] = {}
    for part in parts:
        name, equals, value = part.partition("=")
        if name == "mem":
            made.refused.append(f"-l {part}: {NO_MEMORY}")
        elif name in ("ncpus", "mpiprocs", "ppn", "ngpus", "gpus"):
            each[name] = count(value, name, 0 if "gpus" in name else 1)
        elif equals:
            made.refused.append(f"-l {part}: {NO_SITE}")
        else:
            made.words.append(f"--requires={name}")
    asked.tasks_per_node = each.get("mpiprocs", each.get("ppn", 1 if "ncpus" in each else None))
    if "ncpus" in each:
        cores, left = divmod(each["ncpus"], asked.tasks_per_node or 1)
        if left or not cores:
            raise InvalidInput(f"ncpus={each['ncpus']} does not divide among {asked.tasks_per_node} tasks of a node")
        asked.cores_per_task = cores
    if (gpus := each.get("ngpus", each.get("gpus"))) is not None:
        asked.gpus_per_node = gpus


def _place(made: Translation, text: str) -> None:
    for part in text.split(":"):
        if part in ("excl", "exclhost"):
            made.resources.exclusive = True
        elif part not in ("scatter", "free", "shared"):
            made.refused.append(f"-l place={part}: {NO_SITE}")


def _attributes(made: Translation, value: str) -> None:
    if not value.startswith("depend="):
        raise Unsupported(NO_SITE)
    dependency(made, value.removeprefix("depend="))


def _variables(made: Translation, value: str) -> None:
    made.words += [f"--env={item}" for item in value.split(",") if item]


def _join(made: Translation, value: str) -> None:
    if value not in ("oe", "n"):
        raise Unsupported("only the error stream can go with the output: write -j oe")


def _file(option: str, made: Translation, value: str) -> None:
    made.words.append(f"{option}={value.rpartition(':')[2]}")


OPTIONS = Table(
    {
        "-l": _resources,
        "-N": word("--job-name"),
        "-q": word("--queue"),
        "-A": word("--bank"),
        "-P": word("--bank"),
        "-o": lambda made, value: _file("--output", made, value),
        "-e": lambda made, value: _file("--error", made, value),
        "-j": _join,
        "-d": word("--cwd"),
        "-w": word("--cwd"),
        "-v": _variables,
        "-J": array,
        "-t": array,
        "-W": _attributes,
        "-m": refused(NO_MAIL),
        "-M": refused(NO_MAIL),
        "-a": refused(NO_SITE),
        "-c": refused(NO_SITE),
        "-k": refused(NO_SITE),
        "-p": refused(NO_SITE),
        "-S": refused("the shell is that of the script's first line"),
        "-u": refused(NO_SITE),
        "-r": lambda made, value: ignored(made, value) if value == "n" else refused(NO_SITE)(made, value),
    },
    {
        "-V": refused(NO_EXPORT),
        "-h": refused("submit it when it is to run"),
        "-I": refused("no terminal"),
        "-z": ignored,
    },
)


def translate(words: tuple[str, ...], made: Translation) -> None:
    """Translate the options of one line. Raises InvalidInput."""
    OPTIONS.apply(words, made)
