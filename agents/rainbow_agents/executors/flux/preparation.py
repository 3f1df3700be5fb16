"""Jobs made ready for Flux: what Flux does not do by itself is written into the jobspec.

That is an environment of its own (never the agent's), a working folder that exists, no input, bounded output, the
command of a container, and the mark that says whose job it is.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import Any

from rainbow.errors import InvalidSettings
from rainbow_agents.executors.base import Context, Work
from rainbow_agents.executors.environment import minimal


class Preparer:
    """`flux_folder` is where the program ``flux`` is, once that is known. Raises InvalidSettings for wrong options."""

    def __init__(self, context: Context, options: Mapping[str, Any]) -> None:
        self.flux_folder: str | None = None
        self._owner = context.owner
        self._options = options
        if options["container"] and "{image}" not in options["container"]:
            raise InvalidSettings("option 'container' needs {image} in it, such as: apptainer exec {image}")

    def problem(self, work: Work, seen: dict[str, bool]) -> str | None:
        """Why the job cannot run here. `seen`: folders looked at for this batch, and whether they are there."""
        if work.image and not self._options["container"]:
            return f"the job wants image {work.image!r}, and no container command is set here (option container)"
        if self._options["check_cwd"]:
            for unit in work.units:
                cwd = unit.document["attributes"]["system"].get("cwd")
                if cwd is None:
                    continue
                if cwd not in seen:
                    seen[cwd] = os.path.isdir(cwd)
                # Flux would run it in a temporary folder, and say so on its standard error only.
                if not seen[cwd]:
                    return f"its working folder {cwd!r} does not exist here"
        return None

    def units(self, work: Work) -> list[dict[str, Any]]:
        """The jobspecs to submit, in order, each with the places of those it depends on."""
        places = {unit.name: index for index, unit in enumerate(work.units)}
        return [
            {"spec": self._spec(work, unit.document, index), "needs": [places[name] for name in unit.depends_on]}
            for index, unit in enumerate(work.units)
        ]

    def _spec(self, work: Work, document: Mapping[str, Any], index: int) -> dict[str, Any]:
        """A copy of a V1 document, as deep as it is changed here."""
        spec = dict(document)
        attributes = spec["attributes"] = dict(spec["attributes"])
        system = attributes["system"] = dict(attributes["system"])
        system["environment"] = {**minimal(work.mark, self._path()), **(system.get("environment") or {})}
        system.setdefault("cwd", self._options["cwd"])
        system.setdefault("duration", 0)
        if work.name:
            system["job"] = {"name": work.name[:200], **(system.get("job") or {})}
        shell = system["shell"] = dict(system.get("shell") or {})
        options = shell["options"] = dict(shell.get("options") or {})
        output = options.get("output", {})
        if isinstance(output, Mapping):
            options["output"] = {"limit": self._options["output_limit"], **output}
        # No client can give it input: a job that reads it would never end.
        options.setdefault("input", {"stdin": {"type": "file", "path": "/dev/null"}})
        if spec.get("tasks"):  # without, Flux refuses it
            first, *others = spec["tasks"]
            spec["tasks"] = [{**first, "command": self._command(work, first["command"])}, *others]
        mark = {**work.mark.as_dict(), "owner": self._owner, "part": index, "parts": len(work.units)}
        attributes["user"] = {**(attributes.get("user") or {}), "rainbow": mark}
        return spec

    def _path(self) -> str:
        """The PATH of a job that sets none: the site's, and the folder of Flux's commands at its end."""
        path = str(self._options["path"])
        folder = self.flux_folder
        return path if folder is None or folder in path.split(":") else f"{path}:{folder}"

    def _command(self, work: Work, command: list[str]) -> list[str]:
        if command[:2] == ["flux", "broker"] and self.flux_folder is not None:
            # A group is an instance of the agent's own Flux, whatever PATH the job has.
            command = [os.path.join(self.flux_folder, "flux"), *command[1:]]
        if work.image:
            return [
                *(part.replace("{image}", work.image) for part in shlex.split(self._options["container"])),
                *command,
            ]
        return command


__all__ = ["Preparer"]
