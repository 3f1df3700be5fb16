"""Finds Flux's Python bindings: on the path, else where the program ``flux`` says that they are."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys

from rainbow.errors import UnknownPlugin

#: What the bindings need that Flux does not bring, and the package that has it.
_PACKAGES = {"_cffi_backend": "cffi", "ply": "ply", "yaml": "pyyaml"}
#: Seconds for an answer of `flux env`.
_WITHIN = 30.0


def import_bindings() -> None:
    """Make ``import flux`` work in this process.

    Raises:
        UnknownPlugin: It cannot; the message says what is missing and what to do.
    """
    missing = _missing()
    if missing == "flux":
        folders = _folders()
        if not folders:
            raise UnknownPlugin(
                "there is no Flux here: no `flux` on the PATH, and no Python bindings. Install flux-core, put its bin "
                "folder on the PATH, or choose another agent.executor (local, dry-run)"
            )
        sys.path.extend(folder for folder in folders if folder not in sys.path)
        importlib.invalidate_caches()
        missing = _missing()
    if missing is not None:
        package = _PACKAGES.get(missing)
        fix = f"pip install {package} (or rainbow[flux])" if package else "see that they are of this Python's version"
        raise UnknownPlugin(
            f"Flux's Python bindings need the module {missing!r}, which this Python ({sys.executable}) does not have: "
            f"{fix}, or set agent.executor to flux-cli, which uses Flux's own Python"
        )


def usable() -> bool:
    """Whether the bindings can be imported here."""
    try:
        import_bindings()
    except UnknownPlugin:
        return False
    return True


def _missing() -> str | None:
    """The module whose absence keeps the bindings from being imported; None when nothing does."""
    try:
        importlib.import_module("flux.job")
    except ModuleNotFoundError as exc:
        for name in [name for name in sys.modules if name == "flux" or name.startswith("flux.")]:
            del sys.modules[name]
        return exc.name or "flux"
    except ImportError as exc:
        return exc.name or str(exc)
    return None


def _folders() -> list[str]:
    """Where ``flux env`` says that the bindings are."""
    program = shutil.which("flux")
    if program is None:
        return []
    try:
        shown = subprocess.run(  # noqa: S603
            [program, "env", "printenv", "PYTHONPATH"], capture_output=True, text=True, timeout=_WITHIN, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [folder for folder in shown.stdout.strip().split(":") if folder]


__all__ = ["import_bindings", "usable"]
