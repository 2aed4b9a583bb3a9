"""Custom resource schemas: fill in defaults, drop unknown fields, refuse values that do not fit."""

import re
from typing import Any, NamedTuple

from allotment_local.apiserver.errors import (
    FieldError,
    JsonObject,
    bad_value,
    invalid,
    required,
    unknown_fields,
    unsupported_value,
)
from allotment_local.apiserver.quantities import MALFORMED, parse_quantity
from allotment_local.apiserver.resources import Resource

_ENVELOPE = ("apiVersion", "kind", "metadata")
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


class _Findings(NamedTuple):
    """What was noticed on the way: what is wrong, and the paths of unknown fields dropped."""

    errors: list[FieldError]
    unknown: list[str]


def conform(kind: Resource, obj: JsonObject, *, strict: bool) -> JsonObject:
    """The object as its schema has it: defaults filled in, unknown fields dropped.

    ApiError 422 names every field that does not fit; with `strict`, 400 names the unknown ones.
    """
    schema = kind.schema or {}
    body = {name: value for name, value in obj.items() if name not in _ENVELOPE}
    needed = {**schema, "required": [n for n in schema.get("required") or () if n not in _ENVELOPE]}
    found = _Findings([], [])
    fitted = _fit(needed, body, "", found)
    if strict and found.unknown:
        raise unknown_fields(kind.kind, kind.version, found.unknown)
    if found.errors:
        raise invalid(kind.kind, kind.group, obj["metadata"]["name"], found.errors)
    return {**fitted, **{name: obj[name] for name in _ENVELOPE}}


def _fit(schema: JsonObject, value: Any, path: str, found: _Findings) -> Any:
    """`value` with defaults and without unknown fields."""
    if value is None and schema.get("nullable"):
        return None
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, bool) or not isinstance(value, int | str):
            found.errors.append(bad_value(path, value, "must be an integer or a string"))
        return value
    expected = schema.get("type")
    if expected in _TYPES and not _has_type(expected, value):
        found.errors.append(bad_value(path, value, f"must be of type {expected}"))
        return value
    if isinstance(value, dict):
        return _fit_object(schema, value, path, found)
    if isinstance(value, list):
        _check_size(schema, "Items", len(value), path, found.errors)
        items = schema.get("items")
        if not items:
            return value
        return [_fit(items, item, f"{path}[{index}]", found) for index, item in enumerate(value)]
    _check_scalar(schema, value, path, found.errors)
    return value


def _has_type(expected: str, value: Any) -> bool:
    if isinstance(value, bool):
        return expected == "boolean"
    if expected == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[expected])


def _fit_object(schema: JsonObject, value: JsonObject, path: str, found: _Findings) -> JsonObject:
    properties = schema.get("properties") or {}
    others = schema.get("additionalProperties")
    keeps_unknown = (
        schema.get("x-kubernetes-preserve-unknown-fields")
        or schema.get("x-kubernetes-embedded-resource")
        or not schema.get("type")
    )
    fitted: JsonObject = {}
    for name, item in value.items():
        where = f"{path}.{name}" if path else name
        if name in properties:
            if item is None and not properties[name].get("nullable"):
                continue  # a null that may not be one counts as left out
            fitted[name] = _fit(properties[name], item, where, found)
        elif isinstance(others, dict):
            fitted[name] = _fit(others, item, where, found)
        elif others or keeps_unknown:
            fitted[name] = item
        else:
            found.unknown.append(where)
    for name, property_schema in properties.items():
        if name not in fitted and "default" in property_schema:
            where = f"{path}.{name}" if path else name
            fitted[name] = _fit(property_schema, property_schema["default"], where, found)
    found.errors.extend(
        required(f"{path}.{name}" if path else name)
        for name in schema.get("required") or ()
        if name not in fitted
    )
    _check_size(schema, "Properties", len(value), path, found.errors)
    return fitted


def _check_size(
    schema: JsonObject, what: str, size: int, path: str, errors: list[FieldError]
) -> None:
    least, most = schema.get(f"min{what}"), schema.get(f"max{what}")
    if least is not None and size < least:
        errors.append(bad_value(path, size, f"must have at least {least} {what.lower()}"))
    if most is not None and size > most:
        errors.append(bad_value(path, size, f"must have at most {most} {what.lower()}"))


def _check_scalar(schema: JsonObject, value: Any, path: str, errors: list[FieldError]) -> None:
    allowed = schema.get("enum")
    if allowed is not None and value not in allowed:
        errors.append(unsupported_value(path, value, tuple(str(item) for item in allowed)))
    if isinstance(value, str):
        _check_size(schema, "Length", len(value), path, errors)
        pattern = schema.get("pattern")
        if pattern and "format" not in schema and not _matches(pattern, value):
            errors.append(bad_value(path, value, f"must match {pattern}"))
        if schema.get("format") == "quantity" and parse_quantity(value) is None:
            errors.append(bad_value(path, value, MALFORMED))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        least, most = schema.get("minimum"), schema.get("maximum")
        if least is not None and value < least:
            errors.append(bad_value(path, value, f"should be greater than or equal to {least}"))
        if most is not None and value > most:
            errors.append(bad_value(path, value, f"should be less than or equal to {most}"))
        if value == least and schema.get("exclusiveMinimum"):
            errors.append(bad_value(path, value, f"should be greater than {least}"))
        if value == most and schema.get("exclusiveMaximum"):
            errors.append(bad_value(path, value, f"should be less than {most}"))


def _matches(pattern: str, value: str) -> bool:
    """Patterns are Go's; one that Python cannot read refuses nothing."""
    try:
        return re.search(pattern, value) is not None
    except re.error:
        return True
