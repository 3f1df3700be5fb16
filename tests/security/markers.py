"""Secrets that can be told apart from everything else, and the search for them in whatever spelling."""

from __future__ import annotations

import base64
import os
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote


class Found(AssertionError):
    """A secret where none may be."""


class Marks:
    """The secrets that were planted, and what each of them is."""

    def __init__(self) -> None:
        self._planted: list[tuple[str, bytes]] = []

    def new(self, what: str) -> str:
        """A new secret."""
        made = f"m4rk3r{what}{uuid.uuid4().hex[:12]}"
        self.add(what, made)
        return made

    def add(self, what: str, secret: str | bytes) -> None:
        self._planted.append((what, secret.encode() if isinstance(secret, str) else secret))

    def add_token(self, what: str, token: str) -> None:
        """Of a token, its signature is the secret: the rest says only for whom it is."""
        self.add(what, token.rpartition(".")[2])

    def forms(self) -> Iterator[tuple[str, bytes]]:
        for what, secret in self._planted:
            encoded = base64.b64encode(secret).rstrip(b"=")
            yield from (
                (what, secret),
                (what, quote(secret).encode()),
                (what, secret.hex().encode()),
                (what, encoded),
                (what, encoded.translate(bytes.maketrans(b"+/", b"-_"))),
            )

    def search(self, data: bytes | str, where: str) -> None:
        """Raise Found when a secret is in `data`."""
        raw = data if isinstance(data, bytes) else data.encode("utf-8", "replace")
        for what, form in self.forms():
            at = raw.find(form)
            if at >= 0:
                raise Found(f"{what} in {where}: …{raw[max(0, at - 100) : at]!r}[here]…")

    def search_files(self, folder: Path, *, besides: tuple[str, ...] = ()) -> int:
        """Search every file in `folder` but those with these endings. Gives how many bytes were searched."""
        size = 0
        for file in sorted(folder.rglob("*")):
            if file.is_file() and not file.name.endswith(besides):
                data = file.read_bytes()
                size += len(data)
                self.search(data, str(file))
        return size


class Processes:
    """Looks at the command lines of all processes, again and again, as anybody on the machine can."""

    def __init__(self, marks: Marks) -> None:
        self._forms = [form for _, form in marks.forms()]
        self._stop = threading.Event()
        self.leaks: set[bytes] = set()
        self.seen: set[bytes] = set()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            for pid in filter(str.isdigit, os.listdir("/proc")):
                try:
                    line = Path("/proc", pid, "cmdline").read_bytes()
                except OSError:
                    continue
                if line not in self.seen:
                    self.seen.add(line)
                    if any(form in line for form in self._forms):
                        self.leaks.add(line)

    def end(self) -> None:
        self._stop.set()
        self._thread.join()
