"""Device policies by name. A new one is one file and one entry in `POLICIES`."""

from allotment.core.placement.policies.base import DevicePolicy
from allotment.core.placement.policies.basic import Binpack, Spread, Unscored
from allotment.core.placement.policies.comparison import (
    BestFit,
    DotProduct,
    GpuClustering,
    GpuPacking,
)
from allotment.core.placement.policies.fgd import Fgd
from allotment.core.placement.policies.headroom import Headroom
from allotment.core.placement.policies.valued import Valued
from allotment_proto.facts import Policy

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


_MADE_MOST = 16
_made: dict[int, tuple[Policy, DevicePolicy]] = {}


def device_policy(policy: Policy) -> DevicePolicy:
    """The device policy that a policy names, with its mix if it wants one. An unknown one (in a log
    of a later release) prefers nothing.

    Policies with a mix compile it; they are kept by the identity of `policy`, which is cheaper to
    compare than its content.
    """
    plain = POLICIES.get(policy.device_policy, POLICIES["none"])
    if not policy.mix or not isinstance(plain, Valued):
        return plain
    known = _made.get(id(policy))
    if known is None or known[0] is not policy:
        if len(_made) >= _MADE_MOST:
            _made.clear()
        known = _made[id(policy)] = policy, type(plain)(policy.mix)
    return known[1]
