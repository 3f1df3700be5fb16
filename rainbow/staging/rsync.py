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
#: rsync's exit code where the source is not there, or not to be read.
_PARTIAL = 23


class Rsync:
    """A folder `path` on `host` (`user@host`), reached by rsync over `ssh` (the command with its options)."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        given = {"ssh": "ssh", **options}
        if set(given) != {"host", "path", "ssh"} or not all(isinstance(value, str) for value in given.values()):
            raise InvalidInput("staging rsync takes host and path, and ssh, the command with its options")
        self._host, self._path, self._ssh = given["host"], given["path"].rstrip("/"), f"{given['ssh']} -oBatchMode=yes"
        if not _HOST.fullmatch(self._host) or not self._path.startswith("/"):
            raise InvalidInput("host must be HOST or USER@HOST, and path an absolute one there")
        if shutil.which("rsync") is None:
            raise InvalidInput("there is no program rsync here: install it")

    def put(self, source: Path, key: str) -> None:
        target, tail = f"{self._path}/{key}", "/" if source.is_dir() else ""
        folder = shlex.quote(target if tail else target.rpartition("/")[0])
        self._rsync(f"--rsync-path=mkdir -p {folder} && rsync", f"{source}{tail}", f"{self._host}:{target}")

    def get(self, key: str, target: Path) -> None:
        target.mkdir(parents=True, exist_ok=True)
        self._rsync(f"{self._host}:{self._path}/{key}/", f"{target}/")

    def remove(self, key: str) -> None:
        self._run(*shlex.split(self._ssh), self._host, f"rm -rf -- {shlex.quote(f'{self._path}/{key}')}")

    def _rsync(self, *arguments: str) -> None:
        self._run("rsync", "-rt", "--protect-args", "--timeout=60", "-e", self._ssh, *arguments)

    def _run(self, *command: str) -> None:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode != 0:
            why = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[0]
            kind = NotFound if done.returncode == _PARTIAL and "No such file" in why else Unavailable
            raise kind(f"{self._host}: {why}")
