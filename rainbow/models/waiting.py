"""How jobs wait for room, as the settings say it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from rainbow.models.shares import AccountName, ShareTerms, Weight


class WaitingSettings(BaseModel):
    """How much work clusters get ahead, and how jobs wait that find no room.

    A cluster gets ahead `share` of its size, or as many jobs as end there in `seconds`, whichever is more. A job that
    others pass for `patience` seconds although it is its turn (less for a large one) is bound without room. `window` is
    how many jobs a scheduler holds of each waiting queue. `weights` says how much each user gets of what several users
    of one account want, 1 for those without one; what they had lately counts, half of it after `half_life` seconds.
    `accounts` has weights and limits of accounts, `users` those of users. `over_limit` says what becomes of a
    submission whose user or account has as many jobs on clusters as it may. A job array may have `max_array` elements.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    share: Annotated[float, Field(ge=0, le=10)] = 1 / 16
    seconds: Annotated[float, Field(ge=0, le=600)] = 0.5
    patience: Annotated[float, Field(gt=0)] = 30.0
    window: Annotated[int, Field(gt=0, le=60_000)] = 2500
    weights: dict[str, Weight] = Field(default_factory=dict)
    users: dict[str, ShareTerms] = Field(default_factory=dict)
    accounts: dict[AccountName, ShareTerms] = Field(default_factory=dict)
    over_limit: Literal["wait", "refuse"] = "wait"
    half_life: Annotated[float, Field(ge=1)] = 3600.0
    max_array: Annotated[int, Field(gt=0, le=100_000_000)] = 1_000_000
