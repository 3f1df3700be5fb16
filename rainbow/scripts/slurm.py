"""``#SBATCH`` options, in terms of Flux's."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta

from rainbow.errors import InvalidInput
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

#: Those of an array are filled in for its elements; without an array %A is the id, as in Slurm.
_PATTERNS = {
    "j": "{{id}}",
    "J": "{{id}}",
    "A": "{{array.id}}",
    "a": "{{array.index}}",
    "x": "{{name}}",
    "%": "%",
    "N": "{{node.name}}",
}
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")
_RELATIVE = re.compile(r"now(?:\+(\d+)(seconds?|minutes?|hours?|days?|weeks?)?)?")


def _number(attribute: str, least: int = 1) -> Callable[[Translation, str], None]:
    def handle(made: Translation, value: str) -> None:
        setattr(made.resources, attribute, count(value, attribute.replace("_", " "), least))

    return handle


def _nodes(made: Translation, value: str) -> None:
    least, _, most = value.partition("-")
    if most and least != most:
        raise Unsupported("a range of nodes: write one number")
    made.resources.nodes = count(least, "nodes")


def gpu_count(value: str) -> int:
    """The number in ``[TYPE:]N``; a TYPE is refused, since Flux has it as a property of nodes."""
    *kind, number = value.split(":")
    if not number.isdecimal():
        kind, number = [*kind, number], "1"
    if kind:
        raise Unsupported("a type of GPU: name the nodes' property with --constraint")
    return count(number, "GPUs", 0)


def _gpus(attribute: str) -> Callable[[Translation, str], None]:
    def handle(made: Translation, value: str) -> None:
        setattr(made.resources, attribute, gpu_count(value))

    return handle


def _gres(made: Translation, value: str) -> None:
    if value in ("none", "NONE"):
        return
    kind, _, rest = value.partition(":")
    if kind != "gpu" or "," in value:
        raise Unsupported("only gpu is known to Flux")
    made.resources.gpus_per_node = gpu_count(rest or "1")


def seconds_of(value: str) -> int:
    """Seconds of Slurm's times: minutes, M:S, H:M:S, D-H, D-H:M, D-H:M:S. Raises InvalidInput."""
    if value.lower() in ("infinite", "unlimited"):
        return 0
    match = _TIME.fullmatch(value)
    if match is None:
        raise InvalidInput(f"{value!r} is no time: write minutes, H:MM:SS or D-HH:MM:SS")
    days, first, second, third = (int(part) if part is not None else None for part in match.groups())
    assert first is not None
    if days is not None:
        return days * 86400 + first * 3600 + (second or 0) * 60 + (third or 0)
    if third is not None:
        return first * 3600 + (second or 0) * 60 + third
    return first * 60 + (second or 0)


def _time(made: Translation, value: str) -> None:
    made.words.append(f"--time-limit={seconds_of(value)}s")


def path_of(value: str) -> str:
    """A file name with Slurm's patterns (``%j``, ``%x``) as Flux writes them."""

    def replaced(match: re.Match[str]) -> str:
        if match[2] not in _PATTERNS:
            raise Unsupported(f"the pattern %{match[1]}{match[2]} is not known to Flux")
        return _PATTERNS[match[2]]

    return re.sub(r"%(\d*)([A-Za-z%])", replaced, value)


def _path(option: str) -> Callable[[Translation, str], None]:
    def handle(made: Translation, value: str) -> None:
        made.words.append(f"{option}={path_of(value)}")

    return handle


def _constraint(made: Translation, value: str) -> None:
    if re.search(r"[\[\]*()]", value):
        raise Unsupported("counts and alternatives of features: write FEATURE, A&B or A|B")
    made.words.append(f"--requires={value.replace(',', '&')}")


def _hosts(operator: str) -> Callable[[Translation, str], None]:
    def handle(made: Translation, value: str) -> None:
        made.words.append(f"--requires={operator}host:{value}")

    return handle


def _begin(made: Translation, value: str) -> None:
    match = _RELATIVE.fullmatch(value)
    now = datetime.now()
    if match is not None:
        unit = (match[2] or "seconds").rstrip("s") + "s"
        when = now + timedelta(**{unit: int(match[1] or 0)})
    elif re.fullmatch(r"\d\d:\d\d(:\d\d)?", value):
        when = datetime.combine(now.date(), datetime.strptime(value[:5], "%H:%M").time())
        when += timedelta(days=1 if when <= now else 0)
    else:
        try:
            when = datetime.fromisoformat(value)
        except ValueError:
            raise InvalidInput(f"--begin={value}: write now+1hour, 16:00 or 2026-05-01T12:00:00") from None
    made.words.append(f"--begin-time={when.timestamp():.0f}")


def _export(made: Translation, value: str) -> None:
    for name in value.split(","):
        if name in ("ALL", "NIL"):
            raise Unsupported(NO_EXPORT)
        if name != "NONE":
            made.words.append(f"--env={name}")


def _signal(made: Translation, value: str) -> None:
    name, _, left = value.removeprefix("B:").removeprefix("R:").partition("@")
    made.words.append(f"--signal={name}@{left or '60'}s")


def _only(value: str, why: str, words: tuple[str, ...] = ()) -> Callable[[Translation, str], None]:
    """One value that can be had, all others refused."""

    def handle(made: Translation, given: str) -> None:
        if given != value:
            raise Unsupported(why)
        made.words += words

    return handle


def _exclusive(made: Translation, value: str) -> None:
    made.resources.exclusive = True


def _lenient(made: Translation, value: str) -> None:
    made.lenient = True


def _clusters(made: Translation, value: str) -> None:
    made.clusters += value.split(",")


_SITE = (
    "-q --qos",
    "--reservation",
    "-L --licenses",
    "--hint",
    "--gpu-freq",
    "--cpu-freq",
    "--switches",
    "--network",
    "--nice",
    "--priority",
    "--wckey",
    "--bb",
    "--bbf",
    "--power",
    "--profile",
    "--acctg-freq",
    "--mcs-label",
    "--tmp",
    "--threads-per-core",
    "--sockets-per-node",
    "--cores-per-socket",
    "--ntasks-per-core",
    "--ntasks-per-socket",
    "--ntasks-per-gpu",
    "--cpus-per-gpu",
    "--mincpus",
    "--distribution -m",
    "--time-min",
    "--deadline",
    "--delay-boot",
    "--propagate",
    "--uid",
    "--gid",
    "--open-mode",
    "--export-file",
    "--container",
    "--prefer",
    "--extra-node-info -B",
)

OPTIONS = Table(
    {
        "-N --nodes": _nodes,
        "-n --ntasks": _number("tasks"),
        "--ntasks-per-node --tasks-per-node": _number("tasks_per_node"),
        "-c --cpus-per-task": _number("cores_per_task"),
        "-G --gpus": _gpus("gpus"),
        "--gpus-per-node": _gpus("gpus_per_node"),
        "--gpus-per-task": _gpus("gpus_per_task"),
        "--gres": _gres,
        "-t --time": _time,
        "-J --job-name": word("--job-name"),
        "-o --output": _path("--output"),
        "-e --error": _path("--error"),
        "-i --input": _path("--input"),
        "-D --chdir": word("--cwd"),
        "-p --partition": word("--queue"),
        "-A --account": word("--bank"),
        "-C --constraint": _constraint,
        "-w --nodelist": _hosts(""),
        "-x --exclude": _hosts("-"),
        "-b --begin": _begin,
        "--export": _export,
        "--signal": _signal,
        "--comment": word("--setattr=user.comment"),
        "-M --clusters --cluster": _clusters,
        "-S --core-spec": _only("0", "cores of a node cannot be set aside"),
        "--gpu-bind": _only("none", "Flux binds GPUs to tasks", ("--setopt=gpu-affinity=off",)),
        "--wrap": refused("write the script"),
        "-a --array": array,
        "-d --dependency": dependency,
        "--mem": refused(NO_MEMORY),
        "--mem-per-cpu": refused(NO_MEMORY),
        "--mem-per-gpu": refused(NO_MEMORY),
        "--mem-bind": refused(NO_MEMORY),
        "--mail-type": refused(NO_MAIL),
        "--mail-user": refused(NO_MAIL),
        **dict.fromkeys(_SITE, refused(NO_SITE)),
    },
    {
        "--no-requeue": ignored,  # a job that has started never starts again
        "-Q --quiet": ignored,
        "--parsable": ignored,
        "--ignore-unsupported": _lenient,  # rainbow's own
        "--requeue": refused("a job that has started never starts again: submit it again"),
        "-H --hold": refused("submit it when it is to run"),
        "-W --wait": refused("give --wait to `rainbow submit`"),
        "-s --oversubscribe": refused(NO_SITE),
        "-O --overcommit": refused(NO_SITE),
        "-k --no-kill": refused(NO_SITE),
        "--contiguous": refused(NO_SITE),
        "--reboot": refused(NO_SITE),
        "--spread-job": refused(NO_SITE),
        "--use-min-nodes": refused(NO_SITE),
        "--get-user-env": refused(NO_EXPORT),
    },
)


def translate(words: tuple[str, ...], made: Translation) -> None:
    """Translate the options of one line. Raises InvalidInput."""
    if words[0] in ("hetjob", "packjob"):
        made.refused.append(f"{words[0]}: a job of several parts: write a script for each")
        return
    plain: list[str] = []
    for one in words:
        if one == "--exclusive":
            made.resources.exclusive = True
        elif one.startswith("--exclusive="):
            made.refused.append(f"{one}: only whole nodes can be had exclusively: write --exclusive")
        else:
            plain.append(one)
    OPTIONS.apply(plain, made)
