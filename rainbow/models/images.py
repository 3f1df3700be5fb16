"""The settings `compatibility`, and how settings name a plugin with its options."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AlgorithmSettings(_Section):
    """A plugin by name, with its options."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)


class CompatibilitySettings(_Section):
    """Where to find out what container images need, on the submitter's side: `sources` are asked in turn.

    `policy` says by pattern what attributes are: `need`, `known` (also met where nothing is said), `ignore`, or the
    weight of a preference. With `required`, a job whose image no source has is not submitted. `platform`
    (`linux/amd64`) chooses among several.
    """

    sources: list[AlgorithmSettings] = Field(default_factory=list)
    policy: dict[str, Literal["need", "known", "ignore"] | Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    required: bool = False
    platform: str | None = None
