"""A shell that runs one document's commands, in a folder and a home of its own."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from docs.documents import ROOT, Block, Command, as_shown

#: Seconds: guards against a hang only.
LIMIT = 120.0
UNTIL = 60.0


class Session:
    """`replace` puts real addresses where the document has example ones."""

    def __init__(
        self, folder: Path, environment: Mapping[str, str] | None = None, replace: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder / "work"
        # Documents name the demo's data as they are in a checkout.
        (self.folder / "rainbow" / "demo").mkdir(parents=True)
        (self.folder / "rainbow" / "demo" / "data").symlink_to(ROOT / "rainbow" / "demo" / "data")
        self._replace = dict(replace or {})
        self.said: list[str] = []
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("RAINBOW_", "PYTEST_", "XDG_"))}
        programs = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', os.defpath)}"
        home = {"HOME": str(folder), "PATH": programs, "COLUMNS": "160", "LC_ALL": "C.UTF-8", "TERM": "dumb"}
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.folder,
            env={**kept, **home, **(environment or {})},
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the shell, and what it started in the background: all of it is in its process group."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        with contextlib.suppress(OSError):
            os.killpg(self._shell.pid, signal.SIGTERM)
        end = time.monotonic() + 20
        while _group_lives(self._shell) and time.monotonic() < end:
            time.sleep(0.05)
        with contextlib.suppress(OSError):
            os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.wait()
        with contextlib.suppress(OSError):
            self._shell.stdin.close()
        self._shell.stdout.close()

    def play(self, block: Block) -> list[str]:
        """Write the file, or run the commands; what is not as shown."""
        if block.file is not None:
            path = self.folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._real(block.body))
        if block.no_run is not None:
            return []
        end = time.monotonic() + UNTIL
        while True:
            wrong = self._commands(block)
            if not wrong or not block.until or time.monotonic() > end:
                return wrong
            time.sleep(0.5)

    def transcript(self) -> str:
        logs = [f"--- {f.name}\n{f.read_text()[-2000:]}" for f in sorted(self.folder.glob("*.log"))]
        return "\n".join([*self.said, *logs])

    def run(self, command: str) -> tuple[int, str]:
        """Exit code and output (both streams, in order)."""
        assert self._shell.stdin is not None
        mark = f"--{uuid.uuid4().hex}--"
        # A group: `cd` and `export` last. The exit code goes back to where the next command finds it.
        script = f'{{\n{self._real(command)}\n}} </dev/null\nlast=$?; printf "%s%d\\n" {mark} $last; (exit $last)\n'
        self._shell.stdin.write(script.encode())
        self._shell.stdin.flush()
        output, code = self._read(mark, command)
        self.said.append(f"$ {command}\n{output}".rstrip())
        return code, output

    def _commands(self, block: Block) -> list[str]:
        wrong = []
        for number, command in enumerate(block.commands):
            code, output = self.run(command.text)
            after = block.commands[number + 1].text if number + 1 < len(block.commands) else ""
            if code != 0 and after != "echo $?":
                wrong.append(f"line {block.line}: exit code {code} from: {command.text}\n{output}")
            elif not as_shown(self._real_shown(command), output):
                shown = "\n".join(command.shown)
                wrong.append(f"line {block.line}: {command.text}\n--- printed\n{output}\n--- shown\n{shown}")
        return wrong

    def _read(self, mark: str, command: str) -> tuple[str, int]:
        assert self._shell.stdout is not None
        got = b""
        end = time.monotonic() + LIMIT
        with selectors.DefaultSelector() as selector:
            selector.register(self._shell.stdout, selectors.EVENT_READ)
            while True:
                assert selector.select(max(0.0, end - time.monotonic())), f"no end of {command!r}: {got!r}"
                more = os.read(self._shell.stdout.fileno(), 65536)
                assert more, f"the shell ended in {command!r}: {got!r}"
                got += more
                before, found, after = got.partition(mark.encode())
                if found and after.endswith(b"\n"):
                    return before.decode(errors="replace"), int(after)

    def _real(self, text: str) -> str:
        for example, real in self._replace.items():
            text = text.replace(example, real)
        return text

    def _real_shown(self, command: Command) -> Command:
        return Command(command.text, tuple(self._real(line) for line in command.shown))


def _group_lives(shell: subprocess.Popen[bytes]) -> bool:
    shell.poll()
    try:
        os.killpg(shell.pid, 0)
    except OSError:
        return False
    return True
