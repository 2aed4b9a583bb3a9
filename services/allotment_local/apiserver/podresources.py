"""Resource amounts on Pods and Nodes: their syntax, and the rules between requests and limits."""

from collections.abc import Mapping
from functools import lru_cache

from msgspec.json import decode, encode

from allotment.core import pod_totals
from allotment.core.units import milli_text
from allotment_local.apiserver.errors import (
    FieldError,
    JsonObject,
    bad_value,
    required,
)
from allotment_local.apiserver.meta import is_qualified_name
from allotment_local.apiserver.quantities import MALFORMED, canonical, parse_quantity

_NATIVE = ("cpu", "memory", "ephemeral-storage", "pods", "storage")


def _is_extended(name: str) -> bool:
    return name not in _NATIVE and not name.startswith(("hugepages-", "attachable-volumes-"))


def read_amounts(path: str, amounts: JsonObject) -> tuple[dict[str, str], list[FieldError]]:
    """A map of resource name to quantity, numbers as strings, and what is wrong with it."""
    read: dict[str, str] = {}
    errors: list[FieldError] = []
    for name, value in amounts.items():
        field = f"{path}[{name}]"
        amount = parse_quantity(value)
        if amount is None:
            errors.append(bad_value(field, value, MALFORMED))
            continue
        read[name] = canonical(value)
        if amount < 0:
            errors.append(bad_value(field, value, "must be greater than or equal to 0"))
        elif _is_extended(name) and amount.denominator != 1:
            errors.append(bad_value(field, value, "must be an integer"))
        if not is_qualified_name(name) or (_is_extended(name) and "/" not in name):
            why = "must be a standard resource type or fully qualified"
            errors.append(bad_value(field, name, why))
    return read, errors


def defaulted_resources(container: JsonObject, path: str) -> tuple[JsonObject, list[FieldError]]:
    """A container's resources with requests filled in from limits, and what is wrong with them."""
    resources = container.get("resources") or {}
    if not resources.get("limits") and not resources.get("requests"):
        return resources, []
    filled, errors = _defaulted(encode(resources), f"{path}.resources")
    return filled, list(errors)


def pod_level_resources(spec: JsonObject) -> tuple[JsonObject, list[FieldError]]:
    """What the pod itself asks for, requests filled in, and what is wrong with it; the spec's
    containers have their own requests filled in already.
    """
    given, path = spec["resources"], "spec.resources"
    limits, errors = read_amounts(f"{path}.limits", given.get("limits") or {})
    requests, more = read_amounts(f"{path}.requests", given.get("requests") or {})
    errors += more
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for name in amounts:
            if not pod_totals.is_pod_level(name):
                why = "must be one of cpu, memory, hugepages-<size>"
                errors.append(bad_value(f"{path}.{kind}[{name}]", name, why))
    if errors:
        return given, errors
    containers = pod_totals.of_containers(
        [_requests_milli(container) for container in spec.get("containers") or ()],
        [
            (_requests_milli(container), container.get("restartPolicy") == "Always")
            for container in spec.get("initContainers") or ()
        ],
    )
    own = pod_totals.own_requests(_milli(requests), _milli(limits), containers)
    filled = {name: requests.get(name, milli_text(amount)) for name, amount in own.items()}
    for name, amount in filled.items():
        errors += _relation_errors(path, name, amount, limits.get(name))
        if containers.get(name, 0) > own[name]:
            why = f"must be greater than or equal to aggregate container requests of {name}"
            errors.append(bad_value(f"{path}.requests[{name}]", amount, why))
    return {**given, "requests": filled}, errors


def _requests_milli(container: JsonObject) -> dict[str, int]:
    return _milli((container.get("resources") or {}).get("requests") or {})


def _milli(amounts: Mapping[str, str]) -> dict[str, int]:
    """In thousandths, rounded up; what cannot be read is reported where it stands."""
    found = {name: parse_quantity(text) for name, text in amounts.items()}
    return {
        name: -(-amount.numerator * 1000 // amount.denominator)
        for name, amount in found.items()
        if amount is not None
    }


@lru_cache(maxsize=1024)
def _defaulted(encoded: bytes, where: str) -> tuple[JsonObject, tuple[FieldError, ...]]:
    """Pods come by the hundred with the same resources: the same object for all of them."""
    resources: JsonObject = decode(encoded)
    limits, errors = read_amounts(f"{where}.limits", resources.get("limits") or {})
    requests, more = read_amounts(f"{where}.requests", resources.get("requests") or {})
    errors += more
    if not errors:
        for name, value in requests.items():
            errors += _relation_errors(where, name, value, limits.get(name))
    filled = dict(resources)
    if limits:
        filled["limits"] = limits
    filled["requests"] = {**limits, **requests}
    return filled, tuple(errors)


def _relation_errors(where: str, name: str, request: str, limit: str | None) -> list[FieldError]:
    extended = _is_extended(name)
    if limit is None:
        if not extended:
            return []
        why = f"Limit must be set for non overcommitable resources: {name}"
        return [required(f"{where}.limits", why)]
    asked, allowed = parse_quantity(request), parse_quantity(limit)
    assert asked is not None
    assert allowed is not None
    if extended and asked != allowed:
        why = f"must be equal to {name} limit of {limit}"
    elif asked > allowed:
        why = f"must be less than or equal to {name} limit of {limit}"
    else:
        return []
    return [bad_value(f"{where}.requests", request, why)]
