"""Device policies by name. A new one is one file and one entry in `POLICIES`."""

from allotment.core.policies.base import DevicePolicy
from allotment.core.policies.basic import Binpack, Spread, Unscored
from allotment.core.policies.fgd import Fgd
from allotment.core.policies.headroom import Headroom
from allotment.core.policies.lab import BestFit, DotProduct, GpuClustering, GpuPacking

POLICIES: dict[str, DevicePolicy] = {
    policy.name: policy
    for policy in (
        Binpack(),
        Spread(),
        Unscored(),
        BestFit(),
        DotProduct(),
        GpuPacking(),
        GpuClustering(),
        Fgd(),
        Headroom(),
    )
}
"""Every known policy. A name that is not here counts as ``none``."""


def device_policy(name: str) -> DevicePolicy:
    """The policy of that name; an unknown one (a log of a later release) prefers nothing."""
    return POLICIES.get(name, POLICIES["none"])
