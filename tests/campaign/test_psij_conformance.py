"""PSI/J's own tests of an executor, as its source package has them, with the executor `rainbow`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from importlib import metadata
from pathlib import Path

import pytest

from processes import Site

#: Those of their files that test an executor; the others test PSI/J itself.
FILES = ("test_executor.py", "test_resources.py", "test_nodefile.py", "test_issue_435.py")


def test_psijs_own_tests_pass(site: Site, tmp_path: Path) -> None:
    pytest.importorskip("psij")
    wanted = f"psij-python=={metadata.version('psij-python')}"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "psij-python", wanted]
    got = subprocess.run([*pip, "-d", str(tmp_path)], capture_output=True, text=True, timeout=200, check=False)
    if got.returncode != 0:
        pytest.skip(f"the registry gives no source package of {wanted}: {got.stderr.strip()[-200:]}")
    (archive,) = tmp_path.glob("psij*.tar.gz")
    with tarfile.open(archive) as package:
        for member in package.getmembers():
            if member.isfile() and Path(member.name).name in FILES and "/tests/" in member.name:
                member.name = Path(member.name).name
                package.extract(member, tmp_path, filter="data")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-n",
            "3",
            "-k",
            "rainbow",
            "-p",
            "psij_kit",
            "-p",
            "no:cacheprovider",
            *FILES,
        ],
        cwd=tmp_path,
        env={
            **site.environment(),
            "PYTHONPATH": str(Path(__file__).parents[1] / "support"),
            "RAINBOW_CONFIG": str(site.settings_of("alice")),
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
        },
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None, done.stdout
    assert int(passed[1]) >= 14, done.stdout
