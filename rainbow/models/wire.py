"""What all models of the wire share: frozen, closed (an unknown field is named), errors in one line."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from rainbow.errors import InvalidInput
from rainbow.topology import check_cluster_name

#: The version of the messages written. Readers refuse others.
VERSION = 1

M = TypeVar("M", bound=BaseModel)


class Wire(BaseModel):
    """A message, or a part of one. Unknown fields are refused by name; values are not coerced between kinds."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class OpenWire(BaseModel):
    """A message from our own side. Fields a newer release added are ignored, so that old readers keep working."""

    model_config = ConfigDict(frozen=True, extra="ignore")


ClusterName = Annotated[str, AfterValidator(check_cluster_name)]
Text = Annotated[str, Field(max_length=1024)]


def parse(model: type[M], data: Any) -> M:
    """`data` as `model`; InvalidInput names the first offending field and how many more there are."""
    try:
        return model.model_validate(data)
    except ValidationError as exc:
        raise InvalidInput(explain(exc)) from None


def explain(exc: ValidationError) -> str:
    errors = exc.errors(include_url=False, include_input=False, include_context=False)
    first = errors[0]
    where = ".".join(str(part) for part in first["loc"]) or "message"
    if first["type"] == "extra_forbidden":
        text = f"unknown field {where!r}"
    else:
        text = f"field {where!r}: {first['msg']}"
    return text + (f" (and {len(errors) - 1} more)" if len(errors) > 1 else "")
