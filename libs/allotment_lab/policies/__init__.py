"""Device policies that exist for comparison: what papers compare with, and what was tried.

They run plain, node by node, and only in the lab: a scheduler configuration does not accept them.

* `fgd`: the place where least is newly stranded: fragmentation gradient descent (Weng et al.,
  USENIX ATC 2023). `dot-product`, `gpu-packing`, `gpu-clustering`: what that paper compares with
* `headroom`: the place that costs the pods to come the least room
* `net-headroom`: the same for pods that come and go: large jobs count by their cards, and what a
  pod fills counts for the place

`fgd` wants a mix of exact shapes (CPU, share, number, card types), as published all that make up
95 % of the pods, `headroom` of sizes (share,
number, card types) with the mean CPU and memory of their pods, `net-headroom` the same, counted by
cards asked for and not by pods.
"""

from collections.abc import Callable, Mapping
from functools import partial

from allotment.core.placement.policies import add_for_comparison
from allotment.core.placement.policies.base import DevicePolicy
from allotment.core.placement.policies.learning import LEARNERS
from allotment.core.placement.policies.typical import Mix
from allotment_lab.policies.comparison import DotProduct, GpuClustering, GpuPacking
from allotment_lab.policies.fgd import Fgd
from allotment_lab.policies.headroom import Headroom
from allotment_lab.policies.mixes import card_mix, exact_mix, mean_mix
from allotment_lab.policies.net_headroom import NetHeadroom
from allotment_proto.facts import PodRequest

COMPARED: dict[str, DevicePolicy] = {
    policy.name: policy
    for policy in (DotProduct(), GpuPacking(), GpuClustering(), Fgd(), Headroom(), NetHeadroom())
}
"""By name."""

MIXES: dict[str, Callable[[Mapping[PodRequest, int], int], Mix]] = {
    **LEARNERS,
    Fgd.name: partial(exact_mix, most=None),
    Headroom.name: mean_mix,
    NetHeadroom.name: card_mix,
}
"""How each policy that looks ahead makes a mix, those of the product too."""

add_for_comparison(COMPARED.values())
