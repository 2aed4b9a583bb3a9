"""Device policies by name. A new one is one file and one entry in `POLICIES`.

A device policy is a class in `core/placement/policies/` that decides in plain Python, on one node's
ledgers, which cards it prefers and what the node is worth (`prefer`, `points`). It names the order
in which cards are tried: one of the plain ones, or `preferred`, which calls the policy.

* `binpack`, `spread`, `none`: Volcano's: fullest card; idle card; no preference (`basic.py`)
* `best-fit`: the node that keeps the least free, CPU and cards together (`best_fit.py`)
* `fill-ahead`: what a pod fills, less what it takes of the fill that is still possible, less
  leftovers of cards that are too small to use (`fill_ahead.py`)

The mix. `fill-ahead` looks ahead to typical pods. Under it the watcher checks its state's pods of
this scheduler every 30 s, from 20 pods on, and keeps the 16 sizes (share, number, card types) with
the most pods, each pod counted by the fourth root of the cards that it requests, with the mean CPU
and memory of their pods. If the part of the mix that needs certain cards differs by 5 percentage
points or more from the last `MixLearned`, or its need of CPU or memory by an eighth, the watcher
appends another. There is no mix before a card is seen; without one, best fit decides.
`Decided.policy` still names the `PolicyLoaded`: the current mix follows from the basis. Such a
policy weighs the host's room itself, so the host's weight is 0 under it unless
`allotment.HostPolicy` or `allotment.HostWeight` is set.

Fragmentation is the idle part of cards that a pod of the mix is not expected to be able to use. The
scorer exposes it as `allot_gpu_fragmentation_cards{part="idle"}` and `{part="stranded"}`, in cards,
once there is a mix.

docs/policies.md compares how much each policy fills on which workload.
"""

from collections.abc import Iterable

from allotment.core.placement.policies.base import DevicePolicy
from allotment.core.placement.policies.basic import Binpack, Spread, Unscored
from allotment.core.placement.policies.best_fit import BestFit
from allotment.core.placement.policies.fill_ahead import FillAhead
from allotment.core.placement.policies.valued import Valued
from allotment.core.plugin_arguments import remembered
from allotment_proto.facts import Policy

POLICIES: dict[str, DevicePolicy] = {
    policy.name: policy for policy in (Binpack(), Spread(), Unscored(), BestFit(), FillAhead())
}
"""The policies that a scheduler configuration may name. Another name in a log counts as
``none``.
"""

_compared: dict[str, DevicePolicy] = {}


def add_for_comparison(policies: Iterable[DevicePolicy]) -> None:
    """Allow this process to place pods by these as well; no configuration can name them."""
    _compared.update({policy.name: policy for policy in policies})


def device_policy(policy: Policy) -> DevicePolicy:
    """The device policy that a policy names, with its mix if it uses one. An unknown one (in a log
    of a later release) prefers nothing.
    """
    return _compiled(policy) if policy.mix else _plain(policy)


@remembered
def _compiled(policy: Policy) -> DevicePolicy:
    """The policy, with its mix compiled if it uses one."""
    plain = _plain(policy)
    return type(plain)(policy.mix) if isinstance(plain, Valued) else plain


def _plain(policy: Policy) -> DevicePolicy:
    name = policy.device_policy
    return POLICIES.get(name) or _compared.get(name) or POLICIES["none"]
