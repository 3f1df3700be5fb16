"""`rsync`: a folder of another host, by rsync over ssh."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rainbow.errors import InvalidInput, NotFound, Unavailable

_HOST = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9][A-Za-z0-9.-]*")
#: It never asks, and a host that does not answer is not waited for.
_SSH = "-oBatchMode=yes -oConnectTimeout=30 -oServerAliveInterval=20"
#: rsync's exit code where the source is not there, or not to be read.
_PARTIAL = 23


class Rsync:
    """A folder `path` on `host` (`user@host`), reached by rsync over `ssh` (the command with its options).

    What is copied there is for its owner alone; with the setgid bit on the folder (``chmod g+s``) for its group too.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        given = {"ssh": "ssh", **options}
        if set(given) != {"host", "path", "ssh"} or not all(isinstance(value, str) for value in given.values()):
            raise InvalidInput("staging rsync takes host and path, and ssh, the command with its options")
        self._host, self._path, self._ssh = given["host"], given["path"].rstrip("/"), f"{given['ssh']} {_SSH}"
        if not _HOST.fullmatch(self._host) or not self._path.startswith("/"):
            raise InvalidInput("host must be HOST or USER@HOST, and path an absolute one there")
        if shutil.which("rsync") is None:
            raise InvalidInput("there is no program rsync here: install it")

    def put(self, source: Path, key: str) -> None:
        target, tail = f"{self._path}/{key}", "/" if source.is_dir() else ""
        folder, root = shlex.quote(target if tail else target.rpartition("/")[0]), shlex.quote(self._path)
        there = f"test -g {root} && umask 007 || umask 077; mkdir -p {folder} && rsync"
        # An absolute path is neither an option nor a host. As the umask there allows, the group may what the owner may.
        source = source.absolute()
        self._rsync(f"--rsync-path={there}", "--chmod=ug=rwX,o=", f"{source}{tail}", f"{self._host}:{target}")

    def get(self, key: str, target: Path) -> None:
        target.mkdir(parents=True, exist_ok=True)
        self._rsync(f"{self._host}:{self._path}/{key}/", f"{target}/")

    def remove(self, key: str) -> None:
        self._run(*shlex.split(self._ssh), self._host, f"rm -rf -- {shlex.quote(f'{self._path}/{key}')}")

    def _rsync(self, *arguments: str) -> None:
        self._run("rsync", "-rt", "--protect-args", "--timeout=60", "-e", self._ssh, *arguments)

    def _run(self, *command: str) -> None:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)  # noqa: S603
        if done.returncode != 0:
            # What the host says before is no error, and need not be UTF-8.
            said = done.stderr.decode(errors="replace").strip().splitlines()
            lines = [line for line in said if line.startswith(("rsync", "ssh", "rm"))] or said
            why = lines[0] if lines else f"exit code {done.returncode}"
            kind = NotFound if done.returncode == _PARTIAL and "No such file" in why else Unavailable
            raise kind(f"{self._host}: {why}")
