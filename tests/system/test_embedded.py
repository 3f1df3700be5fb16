"""`rainbow up`, `down` and `demo`, as a person uses them: nothing but this package and its bundled server."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rainbow.embedded.server import socket_path
from running import eventually


class Shell:
    """The command line in a home of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        #: What goes before the program: a umask, another user.
        self.prefix: list[str] = []
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("RAINBOW_")}
        self.environment |= {"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config")}

    @property
    def command(self) -> list[str]:
        return [*self.prefix, sys.executable, "-m", "rainbow.cli"]

    def run(self, *words: str, code: int = 0, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*self.command, *words],
            env=self.environment,
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done

    def json(self, *words: str, code: int = 0) -> object:
        command, *rest = words
        return json.loads(self.run(command, "--json", *rest, code=code).stdout)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    subprocess.run(
        [sys.executable, "-m", "rainbow.cli", "down"],
        env=made.environment,
        cwd=tmp_path,
        capture_output=True,
        timeout=90,
    )


@pytest.mark.timeout(300)
def test_up_submit_down_up_and_what_was_there_is_there(shell: Shell) -> None:
    shell.run("down", code=5)
    shell.run("up", "--detach")
    second = shell.run("up", "--detach", code=1)
    assert "runs already" in second.stderr
    assert second.stderr.count("\n") == 1

    done = shell.run("submit", "--wait", "--", "sh", "-c", "echo out of $0; pwd >/dev/null", "rainbow")
    assert "out of rainbow" in done.stdout + done.stderr
    failed = shell.run("submit", "--wait", "--", "sh", "-c", "exit 7", code=7)
    assert "7" in failed.stdout + failed.stderr
    impossible = shell.run("submit", "-N", "2", "--wait", "hostname", code=1)
    assert "needs 2" in impossible.stdout + impossible.stderr

    held = shell.json("submit", "--hold", "600", "-N", "50", "hostname")
    assert isinstance(held, dict)
    before = shell.json("jobs")
    shell.run("down")
    shell.run("jobs", code=4)
    shell.run("up", "--detach")
    assert shell.json("jobs") == before
    status = shell.json("status", str(held["id"]))
    assert "held" in json.dumps(status)
    assert "local" in shell.run("clusters").stdout
    shell.run("submit", "--wait", "true")


def _supervisor(folder: Path) -> int:
    return int(json.loads((folder / "run.json").read_text())["supervisor"]["pid"])


@pytest.mark.timeout(300)
def test_what_a_killed_supervisor_leaves_is_ended_and_started_again(shell: Shell) -> None:
    """In a folder with a space in its path, under a umask that closes nothing; with bytes and streams as they were."""
    folder = shell.home / "my data"
    shell.prefix = ["bash", "-c", 'umask 0; exec "$@"', "-"]
    shell.run("up", "--detach", "--data-dir", str(folder))
    assert [p for p in folder.rglob("*") if p.is_dir() and p.stat().st_mode & 0o022] == []
    assert folder.stat().st_mode & 0o777 == 0o700
    shell.environment["RAINBOW_CONFIG"] = str(folder / "rainbow-config.yaml")
    done = subprocess.run(
        [*shell.command, "submit", "--wait", "sh", "-c", r"printf 'out\377\n\n'; printf '\033[31merr' >&2"],
        env=shell.environment,
        cwd=shell.home,
        capture_output=True,
        timeout=90,
    )
    assert done.stdout == b"out\xff\n\n"
    assert done.stderr.endswith(b"\x1b[31merr")

    for ended in ("up", "down"):
        os.kill(_supervisor(folder), signal.SIGKILL)
        eventually(lambda: not _lives(folder))
        if ended == "up":
            shell.run("up", "--detach", "--data-dir", str(folder))
            shell.run("submit", "--wait", "true")
        else:
            shell.run("down", "--data-dir", str(folder))
    shell.run("down", "--data-dir", str(folder), code=5)
    outside = socket_path(folder).parent
    assert not outside.is_relative_to(folder), "the socket's path may have no space in it"
    assert not outside.exists()

    folder.chmod(0o775)
    refused = shell.run("up", "--detach", "--data-dir", str(folder), code=2)
    assert f"chmod go-w {folder}" in refused.stderr


def _lives(folder: Path) -> bool:
    try:
        os.kill(_supervisor(folder), 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{_supervisor(folder)}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.timeout(300)
@pytest.mark.skipif(os.getuid() != 0 or shutil.which("setpriv") is None, reason="only root may become somebody else")
def test_a_uid_without_a_name_runs_jobs() -> None:
    """As in containers: no passwd entry, no USER, no LOGNAME; and without HOME where all is named."""
    # Not below pytest's folder, which is for root alone.
    with tempfile.TemporaryDirectory(prefix="rainbow-uid-") as home:
        os.chown(home, 12345, 12345)
        _as_nobody(Shell(Path(home)))


def _as_nobody(shell: Shell) -> None:
    folder = shell.home / "data"
    # Python and this package may lie where nobody else may look.
    may_look = [f"--{which}-caps=+dac_override,+dac_read_search" for which in ("inh", "ambient")]
    shell.prefix = ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", *may_look]
    shell.prefix += ["env", "-u", "USER", "-u", "LOGNAME"]
    shell.run("up", "--detach")
    done = shell.run("submit", "--wait", "sh", "-c", "echo $USER $HOME; id -u")
    assert done.stdout.split() == ["uid-12345", str(shell.home), "12345"]
    shell.run("down")
    shell.prefix += ["-u", "HOME"]
    assert not folder.exists()
    shell.run("up", "--detach", "--data-dir", str(folder))
    shell.environment["RAINBOW_CONFIG"] = str(folder / "rainbow-config.yaml")
    issued = shell.run("token", "issue", "--role", "submit", "--json")
    assert "uid-12345" in issued.stdout
    assert shell.run("submit", "--wait", "sh", "-c", "echo $HOME").stdout == "/\n"
    shell.run("down", "--data-dir", str(folder))


@pytest.mark.timeout(300)
def test_the_demo_shows_what_it_says(shell: Shell) -> None:
    outcomes = shell.json("demo")
    assert isinstance(outcomes, list)
    assert [o["problems"] for o in outcomes] == [[]] * len(outcomes)
    by_title = {o["title"]: o for o in outcomes}
    refused = by_title["refused by its first cluster, runs on the second"]
    assert "aqua refused: user 'guest' may not run jobs here" in "; ".join(refused["why"])
    nowhere = by_title["more than anybody has"]["why"]
    assert len(nowhere) == 3
    assert all("needs 8" in why for why in nowhere)
    shown = shell.run("demo").stdout
    for word in ("training on 2 gpus", "checkpoint written to nvme", "aqua refused", "needs 8 nodes, has 4"):
        assert word in shown
    # Two users share the clusters: the second one's jobs do not wait for all of the first one's.
    assert "MEDIAN WAIT" in shown
    rows = {line.split()[0]: line.split() for line in shown.splitlines() if line.startswith(("demo ", "guest "))}
    assert rows["demo"][1] == "60"
    assert rows["guest"][1] == "15"
    assert float(rows["guest"][-2]) < float(rows["demo"][-2])


@pytest.mark.timeout(300)
def test_up_with_the_web_console(shell: Shell) -> None:
    from urllib.request import urlopen

    from servers import free_ports, wait_until

    address = f"127.0.0.1:{free_ports(1)[0]}"
    with socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))):
        refused = shell.run("up", "--detach", "--web", "--listen", address, code=1)
        assert f"cannot listen on {address}" in refused.stderr
        assert "rainbow is up" not in refused.stderr
    said = shell.run("up", "--detach", "--web", "--listen", address).stderr
    assert f"The web console: http://{address} (sign in with the token in " in said

    def ready() -> bool:
        try:
            with urlopen(f"http://{address}/readyz", timeout=5) as answer:
                return bool(answer.read() == b"ok\n")
        except OSError:
            return False

    wait_until(ready, what="the web console is ready")
    shell.run("down")
    assert not ready()


def test_web_on_a_port_that_is_in_use(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = shell.run("web", "--listen", f"127.0.0.1:{taken.getsockname()[1]}", code=2)
    assert done.stderr.count("\n") == 1
    assert "Address already in use" in done.stderr


@pytest.mark.parametrize("listen", ["nowhere", "127.0.0.1:", "127.0.0.1:70000", ":x"])
def test_web_on_an_address_that_is_none(shell: Shell, listen: str) -> None:
    done = shell.run("web", "--listen", listen, code=2)
    assert done.stderr.count("\n") == 1
    assert "HOST:PORT" in done.stderr
