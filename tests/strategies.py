"""Hypothesis strategies for the domain's values: small worlds, where things collide often."""

from typing import Any

from hypothesis import strategies as st

from allotment.core.policies import POLICIES
from allotment_proto.events import (
    BindFailed,
    Bound,
    Event,
    MixLearned,
    NodeGone,
    NodeObserved,
    PodGone,
    PodObserved,
    PolicyLoaded,
)
from allotment_proto.facts import (
    BUILT_IN_TIERS,
    CardFact,
    Constraints,
    DeviceRequest,
    Expression,
    Geometry,
    Holding,
    Inventory,
    NodeTerm,
    PluginUse,
    PodRequest,
    Policy,
    Problem,
    Profile,
    Selection,
    Taint,
    Toleration,
    Typical,
)
from tests import build

NODES = ("n1", "n2", "n3")
PODS = tuple("abcdefgh")
MODELS = ("NVIDIA-Tesla-T4", "NVIDIA-A100", "AMD-MI300")
names = st.text(st.characters(codec="utf-8"), max_size=12)


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
TAGS = ("group:default/g", "exclusive:app=a", "exclusive:app=b")


def cards(node: str, tables: int = 0) -> st.SearchStrategy[tuple[CardFact, ...]]:
    @st.composite
    def draw_cards(draw: st.DrawFn) -> tuple[CardFact, ...]:
        return tuple(
            build.card(
                index,
                id=f"{node}-{index}",
                slots=draw(st.sampled_from((0, 1, 2, 10))),
                memory_mib=draw(st.sampled_from((0, 4_000, 16_000, 16_001))),
                model=draw(st.sampled_from(MODELS)),
                healthy=draw(st.integers(0, 5)) > 0,
                table=draw(st.integers(0, tables - 1)) if tables else -1,
            )
            for index in range(draw(st.integers(1, 3)))
        )

    return draw_cards()


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
    return build.node(
        name,
        0,
        uid=draw(st.sampled_from((f"uid-{name}", f"uid-{name}", f"new-{name}"))),
        rv=rv,
        labels=draw(st.sampled_from(((), (("tier", "5"),), (("tier", "x"), ("zone", "a"))))),
        taints=draw(
            st.sampled_from(
                ((), (), (Taint("k", "v", "NoSchedule"),), (Taint("k", "v", "PreferNoSchedule"),))
            )
        ),
        unschedulable=draw(st.integers(0, 7)) == 0,
        ready=draw(st.integers(0, 7)) > 0,
        pods=draw(st.sampled_from((1, 3, 20))),
        cpu_milli=draw(st.sampled_from((0, 300, 8_000))),
        extended=draw(st.sampled_from(((), (("example.com/x", 1), ("nvidia.com/gpu", 2))))),
        inventories=tuple(inventories),
    )


def devices() -> st.SearchStrategy[tuple[DeviceRequest, ...]]:
    vgpu = st.builds(
        lambda memory, cores, count, container: build.wants(
            0 if memory < 0 else memory,
            cores,
            count,
            memory_pct=-memory if memory < 0 else 0,
            container=container,
        ),
        st.sampled_from((1, 1_000, 4_000, 8_000, 16_000, -1, -30, -100)),
        st.sampled_from((0, 0, 25, 50, 100)),
        st.sampled_from((1, 1, 1, 2, 5)),
        st.just(0),
    )
    two = st.tuples(vgpu, vgpu.map(lambda d: build.wants(d.memory_mib, d.cores_pct, container=1)))
    shared = st.sampled_from(
        (
            build.wants(2_000, 0, family="gpushare"),
            build.wants(8_001, 0, family="gpushare"),
            build.wants(0, 100, 2, memory_pct=100, family="gpushare"),
        )
    )
    return st.one_of(st.tuples(vgpu), st.tuples(vgpu), two, st.tuples(shared), st.just(()))


selections = st.one_of(
    st.just(Selection()),
    st.sampled_from(
        (
            Selection(mode="hami-core"),
            Selection(mode="mig"),
            Selection(mode="mps"),
            Selection(use_types=("t4", "H100")),
            Selection(nouse_types=("A100",)),
            Selection(use_ids=("n1-0", "n2-1")),
            Selection(nouse_ids=("n1-0",), use_ids=("n1-0", "n3-0")),
            Selection(indexes=(0, 2)),
        )
    ),
)
expressions = st.builds(
    Expression,
    st.sampled_from(("tier", "zone", "absent")),
    st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")),
    st.sampled_from((("4",), ("5",), ("6",))),
)
constraints = st.one_of(
    st.just(Constraints()),
    st.builds(
        Constraints,
        st.sampled_from(((), (("zone", "a"),))),
        st.lists(
            st.builds(
                NodeTerm,
                st.lists(expressions, max_size=2).map(tuple),
                st.sampled_from(((), (Expression("metadata.name", "In", ("n1", "n2")),))),
            ),
            max_size=2,
        ).map(tuple),
        st.sampled_from(
            ((), (Toleration("k", "Equal", "v", ""),), (Toleration("", "Exists", "", ""),))
        ),
    ),
)
requests = st.builds(
    PodRequest,
    st.sampled_from((0, 100, 200)),
    st.sampled_from((0, build.GIB)),
    st.sampled_from(((), (), (("nvidia.com/gpu", 0),), (("nvidia.com/gpu", 1),))),
    devices(),
    selections,
    constraints,
    st.sampled_from(((), (), (), TAGS[:1], TAGS[1:], TAGS[2:])),
)
mixes = st.lists(
    st.builds(Typical, requests, st.integers(0, 1_000_000), st.integers(0, 8_000)), max_size=3
).map(tuple)


_plugin_uses = st.builds(
    PluginUse,
    st.sampled_from(("gang", "binpack", "drf")),
    st.sampled_from(((), ("enableJobOrder",))),
    st.sampled_from(((), ("enableHierarchy",))),
    st.sampled_from(((), (("binpack.weight", 10),), (("strict", False), ("word", "x")))),
)


def _one_tier(uses: list[PluginUse]) -> tuple[tuple[PluginUse, ...], ...]:
    return (tuple(uses),) if uses else ()


def _policies(
    names: tuple[str, ...], learned: st.SearchStrategy[tuple[Typical, ...]]
) -> st.SearchStrategy[Policy]:
    return st.builds(
        Policy,
        device_policy=st.sampled_from(names),
        device_weight=st.sampled_from((0, 10)),
        host_policy=st.sampled_from(("binpack", "spread", "none")),
        host_weight=st.sampled_from((0, 1, 100)),
        families=st.sampled_from((("vgpu", "gpushare"), ("vgpu", "gpushare"), ("vgpu",))),
        mix=learned,
        mig_order=st.sampled_from(("least-stranded", "listed")),
        actions=st.sampled_from((("enqueue", "allocate", "backfill"), ("allocate",), ())),
        tiers=st.one_of(st.just(BUILT_IN_TIERS), st.lists(_plugin_uses, max_size=2).map(_one_tier)),
        configurations=st.lists(_plugin_uses, max_size=1).map(tuple),
    )


policies = _policies(("binpack", "spread", "none"), st.just(()))
"""The policies of the specification's text, which `tests.oracle` knows."""
every_policy = _policies(tuple(POLICIES), st.one_of(st.just(()), mixes))


@st.composite
def pods(draw: st.DrawFn, uid: str = "a", rv: int = 1) -> PodObserved:
    """A pending pod, mostly ours."""
    return build.pod(
        uid,
        draw(requests),
        rv=rv,
        priority=draw(st.sampled_from((0, 0, 10))),
        created_ms=draw(st.integers(0, 3)),
        gated=draw(st.integers(0, 9)) == 0,
        scheduler=draw(st.sampled_from(("allotment", "allotment", "allotment", "other"))),
        tags=draw(st.sampled_from(((), (), TAGS[:1], TAGS[1:2], TAGS))),
        owner=draw(st.sampled_from(("", "job"))),
    )


holdings = st.lists(
    st.builds(
        Holding,
        st.sampled_from(("vgpu", "gpushare")),
        st.integers(0, 1),
        st.sampled_from(("n1-0", "n1-1", "n2-0", "0", "1", "unheard")),
        st.sampled_from((0, 2_000, 16_000)),
        st.sampled_from((0, 50, 100)),
        st.sampled_from(("", "", "g1-0", "g1-1", "g2-3", "g3-9")),
    ),
    max_size=3,
).map(tuple)


def events() -> st.SearchStrategy[Event]:
    """Any event, with any text in its names: for encoding, not for folding."""
    named: dict[str, Any] = {"uid": names, "namespace": names, "name": names}
    numbers = st.integers(0, 1 << 53)
    return st.one_of(
        st.sampled_from(NODES).flatmap(nodes),
        st.sampled_from(PODS).flatmap(pods),
        st.builds(NodeGone, name=names, uid=names, rv=numbers),
        st.builds(PodGone, **named, rv=numbers),
        st.builds(PolicyLoaded, policy=every_policy, source=names, text_sha256=names),
        st.builds(MixLearned, policy=names, mix=mixes, pods=numbers),
        st.builds(Bound, **named, node=names, decision=numbers),
        st.builds(
            BindFailed,
            **named,
            node=names,
            decision=numbers,
            code=names,
            message=names,
            holdings=holdings,
        ),
        st.builds(
            PodObserved,
            **named,
            rv=numbers,
            created_ms=numbers,
            scheduler=names,
            request=requests,
            problem=st.none() | st.builds(Problem, names, names, names),
        ),
    )
