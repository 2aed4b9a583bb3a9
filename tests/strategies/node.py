"""Nodes with a few cards of one family or both; cards, and the tables by which MIG cuts them."""

from hypothesis import strategies as st

from allotment_proto.events import NodeObserved
from allotment_proto.facts import NO_TABLE, CardFact, Geometry, Inventory, Profile, Taint
from tests import build

NODES = ("n1", "n2", "n3")
MODELS = ("NVIDIA-Tesla-T4", "NVIDIA-A100", "AMD-MI300")
MIG_TABLE = (
    Geometry("g1", (Profile("1g", 2_000, 7),)),
    Geometry("g2", (Profile("2g", 4_000, 3), Profile("1g", 2_000, 1))),
    Geometry("g3", (Profile("3g", 8_000, 1), Profile("2g", 4_000, 1), Profile("1g", 2_000, 2))),
    Geometry("g4", (Profile("7g", 15_900, 1),)),
)
SMALL_TABLE = (
    Geometry("g1", (Profile("1g", 1_000, 4),)),
    Geometry("g2", (Profile("2g", 3_900, 1),)),
)
no_table = st.sampled_from((-1, -1, -1, -1, -1, -1, -1, NO_TABLE))


@st.composite
def cards(draw: st.DrawFn, node: str, tables: int = 0) -> tuple[CardFact, ...]:
    return tuple(
        build.card(
            index,
            id=f"{node}-{index}",
            slots=draw(st.sampled_from((0, 1, 2, 10))),
            memory_mib=draw(st.sampled_from((0, 4_000, 16_000, 16_001))),
            model=draw(st.sampled_from(MODELS)),
            healthy=draw(st.integers(0, 5)) > 0,
            table=draw(st.integers(0, tables - 1)) if tables else draw(no_table),
        )
        for index in range(draw(st.integers(1, 3)))
    )


@st.composite
def nodes(draw: st.DrawFn, name: str = "n1", rv: int = 1) -> NodeObserved:
    """A node with cards of one family or both, sometimes tainted, cordoned or tiny."""
    inventories = []
    if draw(st.integers(0, 3)) == 0:
        shared = tuple(
            CardFact(str(i), i, "shared GPU", 1_000_000, 8_000, 100, i != 2, "") for i in range(3)
        )
        inventories.append(Inventory("gpushare", "", shared))
    match draw(st.sampled_from(("hami-core", "hami-core", "hami-core", "mig", "mig", "mps", ""))):
        case "mig":
            tables = (MIG_TABLE, SMALL_TABLE)
            inventories.append(Inventory("vgpu", "mig", draw(cards(name, len(tables))), tables))
        case "":
            pass
        case mode:
            inventories.append(Inventory("vgpu", mode, draw(cards(name))))
    extended = draw(st.sampled_from(((), (("example.com/x", 1), ("nvidia.com/gpu", 2)))))
    is_listed_twice = bool(extended) and draw(st.integers(0, 1)) == 1
    return build.node(
        name,
        0,
        uid=draw(st.sampled_from((f"uid-{name}", f"uid-{name}", f"new-{name}"))),
        rv=rv,
        labels=draw(
            st.sampled_from(
                (
                    (),
                    (("tier", "5"),),
                    (("tier", "x"), ("zone", "a")),
                    (("host", name), ("nvidia.com/gpu.product", "Tesla-T4"), ("zone", "a")),
                    (("nvidia.com/gpu.product", "NVIDIA-H100"),),
                    (("host", name), ("zone", "b")),
                )
            )
        ),
        taints=draw(
            st.sampled_from(
                ((), (), (Taint("k", "v", "NoSchedule"),), (Taint("k", "v", "PreferNoSchedule"),))
            )
        ),
        unschedulable=draw(st.integers(0, 7)) == 0,
        ready=draw(st.integers(0, 7)) > 0,
        pods=draw(st.sampled_from((1, 3, 20))),
        cpu_milli=draw(st.sampled_from((0, 300, 8_000))),
        extended=extended,
        inventories=tuple(inventories),
        listed_twice=tuple(
            ("nvidia.com/gpu", each.family) for each in inventories if is_listed_twice
        ),
        images=draw(st.sampled_from(((), (("a:1", 900),), (("a:1", 2_000), ("b:1", 40))))),
        volume_limits=draw(st.sampled_from(((), (("d1", 1),), (("d1", 2), ("d2", 0))))),
    )
