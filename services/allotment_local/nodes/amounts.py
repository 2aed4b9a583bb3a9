"""What pods ask for and nodes have, as integers: milli-CPU, bytes, counts.

The API server has checked the quantities of pods before they were stored. Those of nodes were
checked too, so a quantity that does not parse here is a fault of ours, not of the user.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from allotment.core import pod_totals
from allotment_local.apiserver.quantities import parse_quantity

JsonObject = dict[str, Any]
Amounts = dict[str, int]

CPU = "cpu"
PODS = "pods"


def amounts(quantities: Mapping[str, Any] | None) -> Amounts:
    """Quantities as integers, rounded up; CPU in thousandths."""
    return {
        name: _whole(quantity, 1000 if name == CPU else 1)
        for name, quantity in (quantities or {}).items()
    }


@lru_cache(maxsize=4096)
def _whole(quantity: str | int | float, scale: int) -> int:
    amount = parse_quantity(quantity)
    assert amount is not None, f"{quantity!r}"
    scaled = amount * scale
    return -(-scaled.numerator // scaled.denominator)


def is_extended(name: str) -> bool:
    """Counted things that a device plugin offers, like ``nvidia.com/gpu``."""
    return "/" in name


def containers(pod: JsonObject) -> Iterator[JsonObject]:
    """Init containers, then containers: the order in which the kubelet serves them."""
    yield from pod["spec"].get("initContainers") or ()
    yield from pod["spec"]["containers"]


def ends_before_others(pod: JsonObject, container: JsonObject) -> bool:
    """Whether it is an init container that is over when the next one starts."""
    is_init = any(container is each for each in pod["spec"].get("initContainers") or ())
    return is_init and container.get("restartPolicy") != "Always"


def limits(container: JsonObject) -> Mapping[str, Any]:
    return (container.get("resources") or {}).get("limits") or {}


def pod_amounts(pod: JsonObject) -> Amounts:
    """What the pod takes of its node, and a place for a pod."""
    spec = pod["spec"]
    containers = pod_totals.of_containers(
        [_requests(container) for container in spec["containers"]],
        [
            (_requests(container), container.get("restartPolicy") == "Always")
            for container in spec.get("initContainers") or ()
        ],
    )
    own = amounts((spec.get("resources") or {}).get("requests"))
    return {PODS: 1, **pod_totals.in_all(containers, own, amounts(spec.get("overhead")))}


def _requests(container: JsonObject) -> Amounts:
    return amounts((container.get("resources") or {}).get("requests"))
