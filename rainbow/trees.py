"""Copying and removing files and folders that others made, who may still change them meanwhile."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import NoReturn

#: A name that became a link, a pipe or a socket meanwhile is not followed, and is not waited for.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_BLOCK = 1 << 20


def copy(source: Path, target: Path, folders: int | None = None) -> None:
    """Copy a file, or what is in a folder, without links and special files.

    Args:
        source: The file or folder.
        target: What it is to be; files that are there are replaced.
        folders: The mode of folders that are made. Where a group may use them, it may use the files as their owner
            may. None: folders and files are as the umask has them. Setuid and setgid are never copied with a file.

    Raises:
        OSError: Also for folders that are nested too deep.
    """
    if not source.is_dir():
        with open(os.open(source, _READ), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(errno.EINVAL, "neither a file nor a folder", str(source))
            _copy_file(file.fileno(), target, folders)
        return
    try:
        for folder, _, names, descriptor in os.fwalk(source, onerror=_raise):
            here = target / os.path.relpath(folder, source)
            make_folder(here, folders)
            for name in names:
                _copy_named(name, descriptor, here / name, folders)
    except RecursionError:
        raise OSError(errno.ENAMETOOLONG, "its folders are nested too deep", str(source)) from None


def make_folder(path: Path, mode: int | None) -> None:
    """Make `path` and the folders above it, each with this mode whatever the umask is. Raises OSError."""
    if path.is_dir():
        return
    make_folder(path.parent, mode)
    path.mkdir(exist_ok=True)
    if mode is not None:
        path.chmod(mode)


def remove(path: Path) -> None:
    """Remove a folder with all that is in it, if it is there, also where its folders are read-only or nested deep.

    Raises:
        OSError: It could not be removed.
    """
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        pass
    except (OSError, RecursionError):
        if path.is_symlink() or not path.is_dir():
            raise
        for command in (["chmod", "-R", "u+rwX"], ["rm", "-rf"]):  # neither follows links, nor recurses
            done = subprocess.run([*command, "--", path], stdin=subprocess.DEVNULL, capture_output=True, check=False)  # noqa: S603
        if done.returncode != 0:
            raise OSError(errno.EIO, "cannot be removed", str(path)) from None


def _copy_named(name: str, folder: int, target: Path, folders: int | None) -> None:
    if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        return
    with open(os.open(name, _READ, dir_fd=folder), "rb") as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            _copy_file(file.fileno(), target, folders)


def _copy_file(source: int, target: Path, folders: int | None) -> None:
    found = os.fstat(source)
    mode = found.st_mode & 0o777
    target.unlink(missing_ok=True)
    with open(os.open(target, _WRITE, 0o600 if folders is not None else mode), "wb", buffering=0) as file:
        while block := os.read(source, _BLOCK):
            if block.count(0) == len(block):
                file.seek(len(block), os.SEEK_CUR)  # a hole stays one
            else:
                _write_all(file.fileno(), block)
        file.truncate(file.tell())
        if folders is not None:
            os.fchmod(file.fileno(), mode | (mode & 0o700) >> 3 if folders & 0o070 else mode)
        os.utime(file.fileno(), ns=(found.st_atime_ns, found.st_mtime_ns))


def _write_all(descriptor: int, block: bytes) -> None:
    view = memoryview(block)
    while view:
        view = view[os.write(descriptor, view) :]


def _raise(exc: OSError) -> NoReturn:
    raise exc
