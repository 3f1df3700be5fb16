"""Shares of users and of accounts, the level above them: weights, and limits beside them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

#: The account of jobs that name none, with a token that names none.
DEFAULT_ACCOUNT = "default"
#: What may be set, in the order in which it is shown.
FIELDS = ("weight", "max_running", "max_waiting", "max_rate")

AccountName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
Weight = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
_Jobs = Annotated[int, Field(ge=0, le=10**9)]

Level = Literal["user", "account"]


class ShareTerms(BaseModel):
    """What is set for a user or an account: None where nothing is.

    `max_running` bounds the jobs that are on clusters, `max_waiting` those that wait, and `max_rate` the submissions a
    second.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    weight: Weight | None = None
    max_running: _Jobs | None = None
    max_waiting: _Jobs | None = None
    max_rate: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None = None

    def over(self, base: ShareTerms) -> ShareTerms:
        """These terms, and those of `base` where these say nothing."""
        said = {name: value for name in FIELDS if (value := getattr(self, name)) is not None}
        return base.model_copy(update=said)

    @property
    def limited(self) -> bool:
        return any(getattr(self, name) is not None for name in FIELDS[1:])

    @property
    def empty(self) -> bool:
        return all(getattr(self, name) is None for name in FIELDS)
