"""How jobs wait for room, as the settings say it."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class WaitingSettings(BaseModel):
    """How much work clusters get ahead, and how jobs wait that find no room.

    A cluster gets ahead `share` of its size, or as many jobs as end there in `seconds`, whichever is more. A job that
    others pass for `patience` seconds although it is its turn is bound to a cluster without room. `window` is how many
    jobs a scheduler holds of each waiting queue. `weights` says how much each user gets of what several users want, 1
    for those without one; what they had lately counts, half of it after `half_life` seconds.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    share: Annotated[float, Field(ge=0, le=10)] = 1 / 16
    seconds: Annotated[float, Field(ge=0, le=600)] = 0.5
    patience: Annotated[float, Field(gt=0)] = 30.0
    window: Annotated[int, Field(gt=0, le=60_000)] = 2500
    weights: dict[str, Annotated[float, Field(gt=0, le=1e6)]] = Field(default_factory=dict)
    half_life: Annotated[float, Field(ge=1)] = 3600.0
