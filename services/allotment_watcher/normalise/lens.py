"""Under which policy and device configuration objects are read."""

from collections.abc import Mapping

from allotment.core.placement.devices import FAMILIES
from allotment.core.placement.rules.terms import weights_of
from allotment_proto.device_config import DeviceConfig
from allotment_proto.facts import PodRequest, Policy
from allotment_proto.volcano import device_config

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"
SCRATCH = "ephemeral-storage"
"""In bytes, and counted like other resources that a node lists."""
NOT_COUNTED = frozenset((CPU, MEMORY, PODS))
"""Resources of a node that are no extended ones."""
BUILT_IN = device_config.default()
"""What holds without a device configuration."""


class Lens:
    """A policy and a device configuration, and what follows from them for reading objects.

    What was read through a lens is remembered with it, and forgotten with it.
    """

    def __init__(
        self, policy: Policy, config: DeviceConfig = BUILT_IN, *, has_groups_made: bool = True
    ) -> None:
        """`has_groups_made`: a controller makes PodGroups for pods that have none."""
        self.policy = policy
        self.config = config
        self.has_groups_made = has_groups_made
        self.resources = frozenset[str]().union(*(f.resources(config) for f in FAMILIES.values()))
        """The names of the resources with which pods ask for devices."""
        self.requests: dict[bytes, PodRequest] = {}
        """What pods of a kind ask for, read through this lens; `pods` fills it."""
        self._assignments = {name: family.assignments(config) for name, family in FAMILIES.items()}
        self._unadvertised = frozenset[str]().union(
            *(family.unadvertised(config) for family in FAMILIES.values())
        )

    @property
    def weighs_images(self) -> bool:
        """Whether nodes earn points for images that they have."""
        return _weighs_images(self.policy)

    def reads_as(self, policy: Policy) -> bool:
        """Whether every object reads the same under another policy."""
        return _read_of(policy) == _read_of(self.policy)

    def families_assigned(self, annotations: Mapping[str, str]) -> list[str]:
        """The device families of which a pod's annotations may tell what it holds. Most pods
        have none, nearly all others one: the rest need not be read.
        """
        written = annotations.keys()
        return [n for n, places in self._assignments.items() if not written.isdisjoint(places)]

    def is_counted(self, name: str) -> bool:
        """Extended resources and huge pages, counted against what the node lists."""
        return name not in NOT_COUNTED and name not in self._unadvertised


def _read_of(policy: Policy) -> tuple[object, ...]:
    """All of a policy that a fact can depend on."""
    return (
        policy.scheduler_names,
        policy.multi_container,
        *(family.read_by(policy) for family in FAMILIES.values()),
        policy.exclusive_rules,
        _weighs_images(policy),
    )


def _weighs_images(policy: Policy) -> bool:
    order = weights_of(policy).nodeorder
    return order is not None and order.images > 0
