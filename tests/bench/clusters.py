"""Synthetic clusters for benches: plain facts, folded through the one door."""

from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment_proto.events import NodeObserved, PodObserved
from allotment_proto.facts import CardFact, DeviceRequest, Inventory, PodRequest

GIB = 1 << 30


def cluster(nodes: int, cards: int = 8, memory_mib: int = 24_564) -> ClusterState:
    """A state with equal vGPU nodes."""
    state = ClusterState()
    for number in range(nodes):
        name = f"gpu-{number:05d}"
        inventory = Inventory(
            "vgpu",
            "hami-core",
            tuple(
                CardFact(
                    id=f"GPU-{number}-{index}",
                    index=index,
                    model="NVIDIA-NVIDIA GeForce RTX 4090",
                    slots=10,
                    memory_mib=memory_mib,
                    cores_pct=100,
                    healthy=True,
                    mode="hami-core",
                )
                for index in range(cards)
            ),
        )
        node = NodeObserved(
            name=name,
            uid=name,
            rv=1,
            cpu_milli=96_000,
            memory_bytes=512 * GIB,
            pods=110,
            inventories=(inventory,),
        )
        apply(state, node, state.seq + 1)
    return state


def add_pods(state: ClusterState, count: int, shapes: int = 1) -> tuple[str, ...]:
    """Pending pods of `shapes` different requests in turn; their uids."""
    uids = []
    for number in range(count):
        request = PodRequest(
            cpu_milli=1000,
            memory_bytes=GIB,
            devices=(DeviceRequest("vgpu", 0, "main", 1, 2000 + 250 * (number % shapes), 0, 10),),
        )
        pod = PodObserved(
            uid=f"pod-{number}",
            namespace="bench",
            name=f"pod-{number}",
            rv=1,
            created_ms=number,
            scheduler="allotment",
            phase="Pending",
            request=request,
        )
        apply(state, pod, state.seq + 1)
        uids.append(pod.uid)
    return tuple(uids)
