"""Device policies by name. A new one is one file and one entry in `POLICIES`.

A device policy is one class in `core/placement/policies/` that says in plain Python, over one
node's ledgers, which cards it prefers and what the node is worth (`prefer`, `points`). It names the
order in which cards are tried: one of the plain ones, for which the columns already hold keys, or
`preferred`, and then keys are made of what charging a card is worth. For many nodes the loops of
the board say the same, by the policy's number (`board/encode.py`): `binpack`, `spread` and `none`
in `board/choice.py`, those that look ahead in `board/values.py`. Those that are there for
comparison score nodes in NumPy in their own file (`base.OnColumns`).

* `binpack`, `spread`, `none`: Volcano's: fullest card; idle card; nothing
* `headroom`: the place that costs the pods to come the least room
* `net-headroom`: the same for pods that come and go: large jobs count by their cards, and what a
  pod fills counts for the place (`net_headroom.py`)
* `fill-ahead`: what a pod fills, less what it takes of the fill that is still possible, less the
  rests of cards that nothing fits into any more (`fill_ahead.py`)
* `fgd`: the place where least is newly stranded: fragmentation gradient descent (Weng et al.,
  USENIX ATC 2023)
* `best-fit`, `dot-product`, `gpu-packing`, `gpu-clustering`: what that paper compares with; for
  comparison only

The mix. `fgd`, `headroom`, `net-headroom` and `fill-ahead` look ahead to typical pods. While one of
them is in force the watcher looks every 30 s at the pods of ours in its state, from 20 pods on, and
keeps the most frequent shapes: as many as make up 95 %, at most 16. `fgd` wants exact shapes (CPU,
share, number, card types), `headroom` sizes (share, number, card types) with the mean CPU and
memory of their pods, `net-headroom` the same, counted by cards asked for and not by pods,
`fill-ahead` by the fourth root of these, 16 sizes without regard to the 95 %. If the part of the
mix that wants certain cards differs by 5 percentage points or more from what the log says, or what
it needs of CPU or memory by an eighth, the watcher appends a `MixLearned`. Nothing is learned
before a card is seen. Until there is one, best fit decides. `PolicyLoaded` stays what
`Decided.policy` names: the mix in force follows from the basis. These policies weigh the host's
room themselves, so the host's weight is 0 under them unless `allotment.HostPolicy` or
`allotment.HostWeight` is set.

Fragmentation is the idle part of cards that a pod of the mix is expected not to be able to use.
The scorer exposes it as `allot_gpu_fragmentation_cards{part="idle"}` and `{part="stranded"}`,
in cards, once there is a mix.

What `headroom` does. The headroom of a node is what it could still earn with the sizes of the
mix: for each size, the worth of the pods that it has room for, one on a card, limited by free
CPU and memory in proportion; then the mean over the mix. A pod goes to the node and the cards
where this shrinks least; of equals to the fullest node. Why it works:

* What a share leaves behind on its card is lost at once, and not only when no shape fits into
  it any more. So shares that fill a card together come together.
* CPU and memory count long before they run out. What needs much of them goes where there is
  much of them per card, and a node keeps the proportion that its cards need to be used up.
  `fgd` sees CPU only when a whole shape no longer fits.
* The mix holds mean needs, so a dozen sizes say what takes `fgd` many dozens of exact shapes.

Allocation at 130 % load on the openb trace and four of its variants, percent of all cards,
means of 10 seeds:

| | default | cpu100 | gpushare40 | gpuspec25 | multigpu20 |
|---|---:|---:|---:|---:|---:|
| `fgd` as published | 95.39 | 95.35 | 94.15 | 94.74 | 95.65 |
| `headroom`, research simulator | 95.96 | 95.95 | 94.54 | 95.84 | 96.21 |
| `headroom`, `allot simulate`, seed 42 only | 95.95 | 95.99 | 94.57 | 95.89 | 96.14 |

The trace has 19 more public variants. On all 24 (seed 42; two seeds on four of them) `headroom`
fills more than `fgd` does here, but for `multigpu30` (equal) and `multigpu40` (96.75 against
96.99). Where means of `fgd` are published, it is above them on 14 of 17: on `cpu050`, `cpu200`
and `cpu250` by 0.8, 0.9 and 0.6 points, `gpushare60`, `80` and `100` by 0.4, 0.5 and 0.3,
`gpuspec10`, `20` and `33` by 1.1, 1.1 and 1.3; below by 0.1, 0.2 and 0.05 where most of the
load wants several whole cards (`multigpu30`, `40`, `50`).

On the default trace `allot simulate --repeat 10` (seeds 42 to 51) gives: `headroom` 95.97,
`fgd` 95.39, `best-fit` 93.19, `gpu-packing` 91.69, `random` 87.65. That `fgd` counts all shapes
that make up the 95 %; with the 16 that production keeps the research simulator finds 94.76 (10
seeds). `headroom` keeps no more than 16 sizes in either.

Its price: idle cards are kept whole only as far as the mix wants whole cards, and to a mix of
shares alone an idle card is worth no more than one that still takes a share, so shares spread. A
decision costs about twice the CPU of one under binpack with compiled loops, and so does one under
`fgd` (`allot bench core --no-queue`, 10,000 nodes, 16 shapes); without machine code ten times, 2 to
3 ms, so these policies have it loaded on clusters of any size. All of them see partitioned cards as
if they were shared by amounts. And the table is about pods that arrive and stay on that trace's
nodes. Where pods come, wait and go, `headroom` is the last or last but one of five policies on all
seven workloads of `deploy/examples/simulate/`, up to 11.5 points below the best of these (all but
`fill-ahead`). Why:

* Sizes are counted by pods, and what is beyond 95 % is left out. Jobs of four and eight cards are
  2 % of the pods of `equal-notebooks` and two fifths of its load: no room is kept for them, shares
  spread over their nodes, and they wait. Counting by cards alone is worth 7 points there.
* Counted by pods, small ones have most weight. Where CPU runs out before the cards and pods stay
  (`equal-inference`), `headroom` keeps CPU for those that need much of it for little of a card: it
  refuses fewest pods and allocates 3 points less. Counted by cards it does not.
* A pod that asks for MiB costs as much room on a large card as on a small one, and fills less of
  it. `net-headroom` counts what it fills: about 1 point on `mixed-inference` and `mixed-notebooks`.

`net-headroom` loses 0.6 points in the published experiment: there jobs of eight cards are 6 % of
what is asked for, and with them in the mix less is filled than without. The
table in docs/policies.md has all workloads. On `training-and-inference` it is 7 points below best
fit: it puts nearly twice as many notebooks on T4 cards (seed 42), of which they fill half, and so
less inference, which fills most of one; that goes to the A100 cards that training waits for. Two
things are wrong there. It sees that a notebook fills half of a T4, and not that no pod fits into
the other half. And what a pod fills is the difference of two parts that are floored to thousandths
of a card, so that of A100 cards that are alike now this one, now that one seems to gain more:
without that alone it fills 2.5 points more there (seeds 1 to 6).

`fill-ahead` counts such rests, and parts in millionths. It was tuned on seeds 1 to 8, 70 to 81 and
24 random workloads. On seeds 100 to 119 of the fourteen workloads in docs/policies.md it is at most
half a point below the best of `binpack`, `best-fit`, `headroom` and `net-headroom`
(`equal-notebooks` that come and go: 0.45 below `binpack`, with a standard error of 0.20), and above
it on nine. On 48 more random workloads, each with pods that go and with pods that stay (research
simulator, which gives the figures of `allot simulate` for plain policies), it is 0.2 points above
the best of the four on the mean, `net-headroom` 1.0 below, `binpack` 1.6 and `best-fit` 2.6; on 16
of these 96 it is more than a point below, at the worst 12. That is where shares fill six tenths of
a T4 and go there, because a rest of four tenths is still a small square, though five of them fill
an L40S, and pods of whole cards, which are as well off on a T4, are refused.
In the published experiment it is 0.4 below `headroom` and 0.1 above `fgd` (seeds 42, 43).
A decision costs 1.5 times the CPU of one under `headroom`. So ask `allot simulate` about one's own
log before changing.
"""

from allotment.core.placement.policies.base import DevicePolicy
from allotment.core.placement.policies.basic import Binpack, Spread, Unscored
from allotment.core.placement.policies.comparison import (
    BestFit,
    DotProduct,
    GpuClustering,
    GpuPacking,
)
from allotment.core.placement.policies.fgd import Fgd
from allotment.core.placement.policies.fill_ahead import FillAhead
from allotment.core.placement.policies.headroom import Headroom
from allotment.core.placement.policies.net_headroom import NetHeadroom
from allotment.core.placement.policies.valued import Valued
from allotment.core.plugin_arguments import remembered
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
        NetHeadroom(),
        FillAhead(),
    )
}
"""Every known policy. A name that is not here counts as ``none``."""


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
    return POLICIES.get(policy.device_policy, POLICIES["none"])
