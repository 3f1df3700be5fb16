"""An executor of Flux under test, on the instance that FLUX_URI names."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rainbow_agents.executors.base import Context, Executor, Held, Listener
from rainbow_agents.executors.testing import Rig

#: Which scheduler the instances load: `simple` (of flux-core), `fluxion` (of flux-sched), or what Flux loads
#: by itself. Run the tests once with each: RAINBOW_FLUX_SCHEDULER=simple pytest tests/flux
SCHEDULER = os.environ.get("RAINBOW_FLUX_SCHEDULER", "")


def flux_maker(
    name: str, folder: Path, owner: str = "0123456789abcdef", **options: Any
) -> Callable[[Listener], Executor]:
    if name == "flux":
        from rainbow_agents.executors.flux import FluxExecutor as Kind
    else:
        from rainbow_agents.executors.flux_cli import FluxCliExecutor as Kind  # type: ignore[assignment]
    return lambda listener: Kind(Context("blue", owner, folder, options=options), listener)


def make_flux(name: str, folder: Path, owner: str = "0123456789abcdef", **options: Any) -> Rig:
    return Rig(flux_maker(name, folder, owner, **options))


def end(rig: Rig) -> None:
    """Cancel the jobs that are left on the instance, and close the executor."""
    active = [Held(f.mark, f.handle) for f in rig.executor.recover([]).jobs if f.phase != "ended"]
    rig.executor.cancel(active, "the test is over")
    for held in active:
        rig.wait_for("Ended", held.mark)
    rig.executor.close()
