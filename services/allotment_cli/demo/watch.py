"""Wait until every example pod has settled, and show where each one was placed."""

from typing import NamedTuple

import anyio

from allotment.answers.folding import fold
from allotment.answers.source import Origin
from allotment.core.errors import AllotError
from allotment.core.explain.causes.why import Whys
from allotment.core.explain.pod import fits_empty_cluster
from allotment.core.explain.rows.pod_views import pod_status
from allotment.core.explain.rows.views import compute_whole, device_name, plain
from allotment.core.ledger.model import ClusterState, Node
from allotment.core.logport import Record
from allotment.core.placement.devices import FAMILIES
from allotment.core.units import mib_text
from allotment_cli.demo.apply import Applied
from allotment_cli.options.source import open_source
from allotment_proto.events import Decided, Envelope, Placement
from allotment_proto.facts import Holding

SETTLED_WITHIN_S = 60.0
POLL_S = 0.25
AT_REST = frozenset(("Running", "Succeeded", "Failed"))
KINDS = frozenset(
    kind
    for name, family in FAMILIES.items()
    for kind in ([f"{name} {mode}" for mode in family.modes] or [name])
)
"""Every kind of device: a family, and what is handed out in modes by its modes."""


class DemoPod(NamedTuple):
    """One example pod. `never`: it would not fit even an empty cluster."""

    namespace: str
    name: str
    status: str
    cause: str
    never: bool
    placement: Placement | None


class Settled(NamedTuple):
    state: ClusterState
    pods: list[DemoPod]


async def settle(origin: Origin, applied: list[Applied]) -> Settled:
    """Wait until each pod runs, has ended, or can never fit.

    Raises `AllotError` naming the pods that have not settled after `SETTLED_WITHIN_S`.
    """
    pods: list[DemoPod] = []
    async with open_source(origin) as source:
        with anyio.move_on_after(SETTLED_WITHIN_S):
            while True:
                placements: dict[str, Placement] = {}

                def observe(
                    record: Record,
                    envelope: Envelope,
                    state: ClusterState,
                    found: dict[str, Placement] = placements,
                ) -> None:
                    found.update(upheld(record, envelope, state))

                folded = await fold(source, None, observe)
                pods = [_pod(folded.state, each, placements) for each in applied]
                if all(pod.status in AT_REST or pod.never for pod in pods):
                    return Settled(folded.state, pods)
                await anyio.sleep(POLL_S)
    late = ", ".join(f"{p.name} ({p.status} {p.cause})" for p in pods if p.status not in AT_REST)
    raise AllotError(f"these pods did not settle within {SETTLED_WITHIN_S:g} s: {late}")


def upheld(record: Record, envelope: Envelope, state: ClusterState) -> dict[str, Placement]:
    """The placements of a record that the fold upheld."""
    return {
        placement.uid: placement
        for event in envelope.events
        if isinstance(event, Decided)
        for placement in event.placements
        if state.voided.get(placement.uid) != record.seq
    }


def _pod(state: ClusterState, applied: Applied, placements: dict[str, Placement]) -> DemoPod:
    pod = state.pods.get(applied.uid)
    if pod is None:
        return DemoPod(applied.namespace, applied.name, "Unseen", "", False, None)
    status, cause = pod_status(state, pod)[0], Whys(state).of(pod).code
    refused = pod.refusal is not None and pod.allocation is None
    return DemoPod(
        applied.namespace,
        applied.name,
        status,
        cause,
        refused and status == "Pending" and fits_empty_cluster(state, pod.fact.request) is False,
        placements.get(applied.uid),
    )


def kinds(state: ClusterState, pod: DemoPod) -> frozenset[str]:
    """Of which of `KINDS` the pod got devices."""
    if pod.placement is None:
        return frozenset()
    ledgers = state.nodes[pod.placement.node].ledgers
    families = {holding.family for holding in pod.placement.holdings}
    return frozenset(
        f"{family} {ledgers[family].mode}" if FAMILIES[family].modes else family
        for family in families
    )


def held_text(state: ClusterState, placement: Placement) -> tuple[str, str, str]:
    """Cards, memory and cores of a placement; amounts are per card."""
    if not placement.holdings:
        return ", ".join(f"{name}: {n}" for name, n in plain(placement.extended).items()), "", ""
    node = state.nodes.get(placement.node)
    memory = {mib_text(h.memory_mib) for h in placement.holdings if h.memory_mib}
    cores = {_cores_text(node, h) for h in placement.holdings}
    each = " each" if len(placement.holdings) > 1 else ""
    return (
        ",".join(_device_text(node, holding) for holding in placement.holdings),
        "/".join(sorted(memory)) + (each if memory else ""),
        "/".join(sorted(cores)) + each,
    )


def _device_text(node: Node | None, holding: Holding) -> str:
    """``GPU-0``, and behind it the instance or the template if there is one."""
    piece = holding.instance.rpartition("/")[2]
    device = device_name(node, holding)
    return f"{device}[{piece}]" if piece else device


def _cores_text(node: Node | None, holding: Holding) -> str:
    """Percent of a card, or AI cores where those are counted."""
    unit = "%" if compute_whole(node, holding) == 100 else " cores"
    return f"{holding.cores_pct}{unit}"
