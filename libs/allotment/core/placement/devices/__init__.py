"""Device families, one file each. A new family is one entry in `FAMILIES`."""

from allotment.core.placement.devices.ascend import Ascend
from allotment.core.placement.devices.base import Family
from allotment.core.placement.devices.gpushare import Gpushare
from allotment.core.placement.devices.mindcluster import Mindcluster
from allotment.core.placement.devices.vgpu import Vgpu
from allotment_proto.facts import DeviceRequest, PodRequest

FAMILIES: dict[str, Family] = {
    family.name: family for family in (Gpushare(), Vgpu(), Mindcluster(), Ascend())
}
"""Every known family by name, in the order in which a pod's requests are asked."""


def by_family(request: PodRequest) -> dict[str, list[DeviceRequest]]:
    """The device requests grouped by family, families in the order of `FAMILIES`."""
    groups: dict[str, list[DeviceRequest]] = {}
    for name in FAMILIES:
        wanted = [r for r in request.devices if r.family == name]
        if wanted:
            groups[name] = wanted
    return groups
