"""Whether Flux's own validator has to be asked about a job, which is the larger part of what a submission costs.

Flux asks a Python process beside the broker about each job. The owner of an instance may go past it, and so does the
agent where it has asked the same question itself, of the same code: Flux's validator plugin `jobspec`, in this process.
Nothing else is left out: defaults, queues, limits, dependencies and feasibility come elsewhere in Flux.

It is done only when the answers must be the same:

- the instance is ours, and of exactly the Flux that these bindings belong to;
- neither its configuration (``[ingest]``, followed as it changes) nor the arguments and the environment of the process
  that validates name other plugins, and there are none of the site's for Flux's commands, which it would ask too;
- the job states no constraints of its own: whether their hosts exist, the validator knows better.

A job that does not pass here goes the usual way, so that Flux itself refuses it, with its own words.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from pathlib import Path
from typing import Any

Json = dict[str, Any]

#: The first version of Flux that streams changes of its configuration.
_FROM = (0, 82)
#: Variables that name plugins of a site to the process that validates.
_NAMING = ("FLUX_CLI_PLUGINPATH", "FLUX_CLI_PLUGINPATH_OVERRIDE")


class Validating:
    """Of one connection. `wanted` false: every job is left to Flux's validator."""

    def __init__(self, handle: Any, wanted: bool) -> None:
        self._plugin: Any = None
        # Whatever another Flux does not have: it is then asked.
        with contextlib.suppress(Exception):
            self._plugin = _own_plugin() if wanted and _ours(handle) else None
        self._plain = False
        self._seen = False

    def configured(self, config: Json) -> None:
        """The instance's configuration, as it is from now on."""
        self._plain = plain(config)

    @property
    def unseen(self) -> bool:
        """Whether the process that validates is still to be looked at (see `look`), and that may be of use."""
        return self._plugin is not None and not self._seen

    def look(self, stats: Json) -> None:
        """Look at the processes that validate, as ``job-ingest.stats-get`` lists them.

        Arguments and environment hold for as long as the module is loaded: once is enough.
        """
        pids = [pid for pid in stats["pipeline"]["validator"]["pids"] if pid > 0]
        if not pids:
            return  # idle ones end by themselves
        if all(map(plain_process, pids)):
            self._seen = True
        else:
            self._plugin = None

    def passes(self, spec: Json) -> bool:
        """Whether Flux's validator would let this jobspec in for certain."""
        if self._plugin is None or not self._plain or not self._seen:
            return False
        try:
            if "constraints" in spec["attributes"]["system"]:
                return False
            from flux.job.validator.validator import ValidatorJobInfo

            job = {"jobspec": spec, "userid": os.getuid(), "flags": 0, "urgency": 0}
            result = self._plugin.validate(ValidatorJobInfo(job))
        except Exception:  # whatever it is, Flux will say it in its own words
            return False
        return result is None or result[0] == 0


def plain(config: Json) -> bool:
    """Whether Flux validates with what it brings, and changes jobs before only by its own rules (queue, duration)."""
    ingest = config.get("ingest") or {}
    return not ingest.get("validator") and not ingest.get("frobnicator")


def plain_process(pid: int) -> bool:
    """Whether this is a validator of this host, started with nothing else to ask."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        names = {line.partition(b"=")[0] for line in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")}
    except OSError:
        return False
    told = [word for word in words if word]
    return bool(told) and told[-1].endswith(b"job-validator.py") and not names & {name.encode() for name in _NAMING}


def _ours(handle: Any) -> bool:
    """Whether we own this instance, and it is of the Flux whose bindings these are."""
    from flux.core.inner import raw

    version = handle.attr_get("version")
    here = raw.flux_core_version_string()
    numbers = tuple(int(part) for part in version.split("-")[0].split(".")[:2])
    same = version == (here.decode() if isinstance(here, bytes) else here)
    return same and numbers >= _FROM and int(handle.attr_get("security.owner")) == os.getuid()


def _own_plugin() -> Any:
    """Flux's validator plugin, as Flux would set it up; None where a site has added to it."""
    from flux.conf_builtin import conf_builtin_get
    from flux.job.validator import JobValidator
    from flux.job.validator.plugins.jobspec import Validator

    folders = [Path(conf_builtin_get(name)) / "cli" / "plugins" for name in ("confdir", "libexecdir")]
    if any(name in os.environ for name in _NAMING) or any(any(f.glob("*.py")) for f in folders):
        return None
    if JobValidator.default_validators != ["jobspec"]:
        return None
    parser = argparse.ArgumentParser()
    plugin = Validator(parser)
    plugin.configure(parser.parse_args([]))
    return plugin
