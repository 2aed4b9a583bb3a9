"""The one admission policy that this server enforces, where it is installed: which annotations of
Pods only schedulers and device plugins write, and that pods with devices pass a scheduler
(`deploy/base/annotation-policy.yaml`).

The policy's expressions are not evaluated. What they say is `allotment_proto.volcano.reserved`, and
a test holds the two equal. A token identifies a scheduler; fake device plugins write to the
Store themselves.
"""

from pathlib import Path
from typing import Protocol

import yaml

from allotment_local.apiserver.errors import JsonObject, forbidden
from allotment_local.apiserver.resources import PODS, ResourceKey
from allotment_proto.volcano.reserved import POLICY, SCHEDULERS, SHARES, is_reserved

_GROUP = "admissionregistration.k8s.io"
POLICIES = ResourceKey(_GROUP, "validatingadmissionpolicies")
POLICY_BINDINGS = ResourceKey(_GROUP, "validatingadmissionpolicybindings")
PLACES = (
    Path(__file__).resolve().parents[3] / "deploy" / "base" / "annotation-policy.yaml",
    Path(__file__).resolve().parents[1] / "annotation-policy.yaml",
)
"""Where the policy is: in a checkout, and in an installed package."""


class World(Protocol):
    """What is asked of a Store."""

    def find(self, resource: ResourceKey, namespace: str, name: str) -> JsonObject | None: ...


def read_policy() -> tuple[JsonObject, JsonObject]:
    """The policy and its binding, as a cluster gets them. Raises FileNotFoundError."""
    place = next((path for path in PLACES if path.is_file()), PLACES[-1])
    policy, binding = yaml.safe_load_all(place.read_text(encoding="utf-8"))
    return policy, binding


def check_assignments(
    world: World, name: str, before: JsonObject, after: JsonObject, *, is_bound: bool
) -> None:
    """Refuse a write of what is reserved by another client; `before` and `after` are annotations.
    ApiError 403."""
    differing = [key for key in after if key not in before or before[key] != after[key]]
    differing += [key for key in before if key not in after]
    refused = [key for key in differing if is_reserved(key, is_bound=is_bound)]
    if not refused or world.find(POLICY_BINDINGS, "", POLICY) is None:
        return
    why = (
        f"ValidatingAdmissionPolicy '{POLICY}' with binding '{POLICY}' denied request: the "
        f"annotations {', '.join(refused)} say which devices a pod holds: only the scheduler and "
        "the device plugins write them. Leave them out of a new pod, and as they are on one that "
        "exists (kubectl replace drops them: use apply, patch or edit)."
    )
    raise forbidden(PODS.plural, PODS.group, name, why)


def check_scheduled(world: World, pod: JsonObject) -> None:
    """Refuse a new pod that asks for devices and passes the schedulers that give them: its node's
    plugin would serve it with another pod's record. ApiError 403."""
    spec = pod["spec"]
    containers = [*spec.get("containers", ()), *spec.get("initContainers", ())]
    limits = [((each.get("resources") or {}).get("limits") or {}) for each in containers]
    asks = any(name.startswith(SHARES) for each in limits for name in each)
    passes = spec.get("nodeName") or spec.get("schedulerName") not in SCHEDULERS
    if not asks or not passes or world.find(POLICY_BINDINGS, "", POLICY) is None:
        return
    why = (
        f"ValidatingAdmissionPolicy '{POLICY}' with binding '{POLICY}' denied request: a pod that "
        f"asks for shared devices ({', '.join(SHARES)}) needs a scheduler that hands them out: "
        "leave out spec.nodeName and set spec.schedulerName to allotment. Else the device plugin "
        "would serve it with another pod's devices."
    )
    raise forbidden(PODS.plural, PODS.group, pod["metadata"]["name"], why)


def annotations_of(obj: JsonObject) -> JsonObject:
    return (obj.get("metadata") or {}).get("annotations") or {}
