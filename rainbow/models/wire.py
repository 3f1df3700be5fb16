"""What all models of the wire share: frozen, closed (an unknown field is named), errors in one line."""

from __future__ import annotations

import re
from difflib import get_close_matches
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
        raise InvalidInput(explain(exc, model)) from None


def explain(exc: ValidationError, model: type[BaseModel] | None = None) -> str:
    """Return the first errors of a validation in one line: where, and what is wrong.

    Args:
        exc: what pydantic raised.
        model: of the whole document, to name the nearest known field for one that is unknown.
    """
    errors = exc.errors(include_url=False, include_input=False)
    first = errors[0]
    where = ".".join(str(part) for part in first["loc"] if not _BRANCH.match(str(part))) or "message"
    if first["type"] == "extra_forbidden":
        near = get_close_matches(str(first["loc"][-1]), _known(model, first["loc"][:-1]), 1)
        text = f"unknown field {where!r}" + (f": did you mean {near[0]!r}?" if near else "")
    else:
        text = f"field {where!r}: {_words(first)}"
    others = len({error["loc"][:1] for error in errors}) - 1
    return text + (f" (and {others} more)" if others else "")


#: How pydantic names the branches of a union within a place.
_BRANCH = re.compile(r"(?:str|int|float|bool|bytes|dict\[.*|list\[.*|function-.*|constrained-.*|nullable.*)$")
_WORDS = {
    "missing": "is missing",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
    "literal_error": "must be {expected}",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "string_too_long": "may have at most {max_length} characters",
    "string_pattern_mismatch": "must match {pattern}",
    "string_too_short": "must have at least {min_length} characters",
}


def _words(error: Any) -> str:
    words = _WORDS.get(error["type"])
    if words is None:
        return str(error["msg"]).removeprefix("Value error, ")
    numbers = {name: f"{v:.15g}" if isinstance(v, float) else v for name, v in error.get("ctx", {}).items()}
    return words.format(**numbers)


def _known(model: type[BaseModel] | None, place: tuple[int | str, ...]) -> list[str]:
    """The fields of `model` at a place in it; none where that is not known."""
    for part in place:
        field = model.model_fields.get(str(part)) if model is not None else None
        kind = field.annotation if field is not None else None
        model = kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None
    return list(model.model_fields) if model is not None else []
