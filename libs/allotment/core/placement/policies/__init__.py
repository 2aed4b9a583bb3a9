"""Device policies by name. A new one is one file and one entry in `POLICIES`.

A device policy is one class in `core/placement/policies/` that says in plain Python, over one
node's ledgers, which cards it prefers and what the node is worth (`prefer`, `points`). It names the
order in which cards are tried: one of the plain ones, or `preferred`: then the policy is asked.

* `binpack`, `spread`, `none`: Volcano's: fullest card; idle card; nothing (`basic.py`)
* `best-fit`: the node that keeps the least free, CPU and cards together (`best_fit.py`)
* `fill-ahead`: what a pod fills, less what it takes of the fill that is still possible, less the
  rests of cards that nothing fits into any more (`fill_ahead.py`)

The mix. `fill-ahead` looks ahead to typical pods. While it is in force the watcher looks every 30 s
at the pods of ours in its state, from 20 pods on, and keeps the 16 sizes (share, number, card
types) with the most pods, each pod counted by the fourth root of the cards that it asks for, with
the mean CPU and memory of their pods. If the part of the mix that wants certain cards differs by 5
percentage points or more from what the log says, or what it needs of CPU or memory by an eighth,
the watcher appends a `MixLearned`. Nothing is learned before a card is seen. Until there is one,
best fit decides. `PolicyLoaded` stays what `Decided.policy` names: the mix in force follows from
the basis. Such a policy weighs the host's room itself, so the host's weight is 0 under it unless
`allotment.HostPolicy` or `allotment.HostWeight` is set.

Fragmentation is the idle part of cards that a pod of the mix is expected not to be able to use.
The scorer exposes it as `allot_gpu_fragmentation_cards{part="idle"}` and `{part="stranded"}`,
in cards, once there is a mix.

docs/policies.md says how much each fills on which workload, and what else was compared.
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
"""What a scheduler configuration may name. A name in a log that is not here counts as ``none``."""

_compared: dict[str, DevicePolicy] = {}


def add_for_comparison(policies: Iterable[DevicePolicy]) -> None:
    """Let this process place pods by these, too; no configuration can name them."""
    _compared.update({policy.name: policy for policy in policies})


def device_policy(policy: Policy) -> DevicePolicy:
    """The device policy that a policy names, with its mix if it wants one. An unknown one (in a log
    of a later release) prefers nothing."""
    return _compiled(policy) if policy.mix else _plain(policy)


@remembered
def _compiled(policy: Policy) -> DevicePolicy:
    """Policies that want a mix compile it."""
    plain = _plain(policy)
    return type(plain)(policy.mix) if isinstance(plain, Valued) else plain


def _plain(policy: Policy) -> DevicePolicy:
    name = policy.device_policy
    return POLICIES.get(name) or _compared.get(name) or POLICIES["none"]
