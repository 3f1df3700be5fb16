"""A real ssh server of this user, on a free port of this machine, and the command that gets in."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rig import eventually
from servers import free_ports

_CONFIG = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin yes
"""


@contextmanager
def ssh_server(folder: Path) -> Iterator[str]:
    """Give the command ``ssh`` with its options. Skips where there is no sshd or rsync."""
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None or shutil.which("rsync") is None:
        pytest.skip("sshd and rsync are not installed (Debian: openssh-server rsync)")
    for name in ("host", "user"):
        key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(key, check=True, timeout=20)
    (port,) = free_ports(1)
    (folder / "config").write_text(_CONFIG.format(port=port, folder=folder))
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    options = f"-p {port} -i {folder}/user -oStrictHostKeyChecking=no -oUserKnownHostsFile=/dev/null -oLogLevel=ERROR"
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([program, "-D", "-e", "-f", str(folder / "config")], stdout=log, stderr=log)
    try:

        def answers() -> bool:
            assert server.poll() is None, (folder / "log").read_text()
            probe = ["ssh", *options.split(), "-oBatchMode=yes", "127.0.0.1", "true"]
            return subprocess.run(probe, capture_output=True, timeout=20, check=False).returncode == 0

        eventually(answers, 20, every=0.05)
        yield f"ssh {options}"
    finally:
        server.terminate()
        server.wait(10)
