"""Hypothesis strategies for the domain's values: small worlds, where things collide often."""

from typing import Any

import msgspec
from hypothesis import strategies as st

from allotment.core.policies import POLICIES
from allotment_proto.events import (
    BindFailed,
    Bound,
    ConfigurationChecked,
    Event,
    MixLearned,
    NodeGone,
    NodeObserved,
    PodGone,
    PodObserved,
    PolicyLoaded,
    TimePassed,
)
from allotment_proto.facts import (
    ALONE,
    BUILT_IN_TIERS,
    NO_TABLE,
    Attachment,
    CardFact,
    Company,
    Constraints,
    DeviceRequest,
    Expression,
    Geometry,
    Holding,
    HostPort,
    Inventory,
    NodeTerm,
    PluginUse,
    PodPreference,
    PodRequest,
    PodTerm,
    Policy,
    Preference,
    Problem,
    Profile,
    Selection,
    Spread,
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
no_table = st.sampled_from((-1, -1, -1, -1, -1, -1, -1, NO_TABLE))
TAGS = ("group:default/g", "exclusive:app=a", "exclusive:app=b")


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
                    (("host", name), ("zone", "a")),
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
        extended=draw(st.sampled_from(((), (("example.com/x", 1), ("nvidia.com/gpu", 2))))),
        inventories=tuple(inventories),
        images=draw(st.sampled_from(((), (("a:1", 900),), (("a:1", 2_000), ("b:1", 40))))),
        volume_limits=draw(st.sampled_from(((), (("d1", 1),), (("d1", 2), ("d2", 0))))),
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
placed_constraints = st.one_of(
    constraints,
    st.builds(
        lambda given, preferred, volumes: msgspec.structs.replace(
            given, preferred=preferred, volumes=volumes
        ),
        constraints,
        st.sampled_from(
            (
                (),
                (Preference(80, NodeTerm((Expression("zone", "In", ("a",)),))),),
                (
                    Preference(20, NodeTerm((Expression("tier", "Exists", ()),))),
                    Preference(7, NodeTerm((), (Expression("metadata.name", "In", ("n2",)),))),
                ),
            )
        ),
        st.sampled_from(
            ((), (), ((NodeTerm((Expression("zone", "In", ("a", "b")),)), NodeTerm(())),))
        ),
    ),
)
SELECTORS = (
    (),
    (Expression("app", "In", ("web",)),),
    (Expression("app", "NotIn", ("web", "db")), Expression("app", "Exists", ())),
)
pod_terms = st.builds(
    PodTerm,
    st.sampled_from(("zone", "zone", "host", "tier")),
    st.sampled_from(((), ("default",), ("other",))),
    st.sampled_from(SELECTORS),
)
spreads = st.builds(
    Spread,
    pod_terms,
    st.sampled_from((1, 1, 2)),
    st.booleans(),
    st.booleans(),
    st.sampled_from((1, 1, 3)),
    st.booleans(),
    st.booleans(),
)


def _few(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.just(()), st.just(()), st.lists(values, max_size=2).map(tuple))


company = st.one_of(
    st.just(ALONE),
    st.just(ALONE),
    st.just(ALONE),
    st.builds(
        Company,
        ports=st.sampled_from(
            ((), (), (HostPort("TCP", "0.0.0.0", 80),), (HostPort("TCP", "10.0.0.1", 80),))
        ),
        near=_few(pod_terms),
        near_self=st.booleans(),
        away=_few(pod_terms),
        preferred=_few(
            st.builds(PodPreference, st.sampled_from((1, 50, 100, -50, -100)), pod_terms)
        ),
        spread=_few(spreads),
    ),
)


def _requests(where: st.SearchStrategy[Constraints], **more: Any) -> st.SearchStrategy[PodRequest]:
    return st.builds(
        PodRequest,
        st.sampled_from((0, 100, 200)),
        st.sampled_from((0, build.GIB)),
        st.sampled_from(((), (), (("nvidia.com/gpu", 0),), (("nvidia.com/gpu", 1),))),
        devices(),
        selections,
        where,
        st.sampled_from(((), (), (), TAGS[:1], TAGS[1:], TAGS[2:])),
        **more,
    )


requests = _requests(constraints)
attachments = st.lists(
    st.builds(Attachment, st.sampled_from(("d1", "d2")), st.sampled_from(("ns/a", "ns/b", "ns/c"))),
    max_size=2,
    unique=True,
).map(lambda volumes: tuple(sorted(volumes, key=repr)))
every_request = _requests(
    placed_constraints,
    images=st.sampled_from(((), (), ("a:1",), ("a:1", "b:1"))),
    attachments=st.one_of(st.just(()), attachments),
    company=company,
    unsaid=st.sampled_from(((0, 0), (0, 0), (100, 200 << 20))),
)
"""With rules about other pods, volumes, and preferences, too."""
mixes = st.lists(
    st.builds(Typical, requests, st.integers(0, 1_000_000), st.integers(0, 8_000)), max_size=3
).map(tuple)


_plugin_uses = st.builds(
    PluginUse,
    st.sampled_from(("gang", "drf")),
    st.sampled_from(((), ("enableJobOrder",))),
    st.sampled_from(((), ("enableHierarchy",))),
    st.sampled_from(((), (("strict", False), ("word", "x")))),
)


def _arguments(*chosen: tuple[str, tuple[int | bool, ...]]) -> st.SearchStrategy[Any]:
    """Some of the arguments, each with one of its values, sorted."""
    given = {name: st.sampled_from(values) for name, values in chosen}
    drawn = st.fixed_dictionaries({}, optional=given)
    return drawn.map(lambda found: tuple(sorted(found.items())))


_WEIGHTS = (0, 1, 3, 1_000)
_placing_uses = st.one_of(
    st.builds(
        PluginUse,
        st.just("nodeorder"),
        st.sampled_from(((), (), (), ("enableNodeOrder",))),
        arguments=_arguments(
            ("leastrequested.weight", _WEIGHTS),
            ("mostrequested.weight", _WEIGHTS),
            ("balancedresource.weight", _WEIGHTS),
            ("balancedresource.kubernetesMinor", (32, 36)),
            ("nodeaffinity.weight", _WEIGHTS),
            ("podaffinity.weight", _WEIGHTS),
            ("podtopologyspread.weight", _WEIGHTS),
            ("imagelocality.weight", _WEIGHTS),
            ("tainttoleration.weight", _WEIGHTS),
        ),
    ),
    st.builds(
        PluginUse,
        st.just("binpack"),
        arguments=_arguments(
            ("binpack.weight", (0, 1, 10, 1_000)),
            ("binpack.cpu", _WEIGHTS),
            ("binpack.memory", _WEIGHTS),
            ("binpack.resources.nvidia.com/gpu", _WEIGHTS),
        ),
    ),
    st.builds(
        PluginUse,
        st.just("resource-strategy-fit"),
        arguments=_arguments(
            ("resourceStrategyFitWeight", (1, 10)),
            ("most.nvidia.com/*", (1, 3)),
            ("least.cpu", (1, 3)),
            ("most.memory", (1, 3)),
        ),
    ),
    st.builds(
        PluginUse,
        st.just("predicates"),
        arguments=_arguments(
            ("predicate.NodeAffinityEnable", (True, False)),
            ("predicate.NodePortsEnable", (True, False)),
            ("predicate.PodAffinityEnable", (True, False)),
            ("predicate.PodTopologySpreadEnable", (True, False)),
            ("predicate.TaintTolerationEnable", (True, False)),
            ("predicate.VolumeBindingEnable", (True, False)),
        ),
    ),
)


def _one_tier(uses: list[PluginUse]) -> tuple[tuple[PluginUse, ...], ...]:
    return (tuple(uses),) if uses else ()


_placing_tiers = st.lists(_placing_uses, min_size=1, max_size=4, unique_by=lambda use: use.name)


def _policies(
    names: tuple[str, ...],
    learned: st.SearchStrategy[tuple[Typical, ...]],
    placing: st.SearchStrategy[Any],
) -> st.SearchStrategy[Policy]:
    return st.builds(
        Policy,
        device_policy=st.sampled_from(names),
        device_weight=st.sampled_from((0, 10)),
        host_policy=st.sampled_from(("binpack", "spread", "none")),
        host_weight=st.sampled_from((0, 1, 100)),
        fit_weight=st.sampled_from((0, 10, 100)),
        families=st.sampled_from((("vgpu", "gpushare"), ("vgpu", "gpushare"), ("vgpu",))),
        mix=learned,
        mig_order=st.sampled_from(("least-stranded", "listed")),
        actions=st.sampled_from((("enqueue", "allocate", "backfill"), ("allocate",), ())),
        tiers=st.one_of(
            st.just(BUILT_IN_TIERS), st.lists(_plugin_uses, max_size=2).map(_one_tier), placing
        ),
        configurations=st.lists(_plugin_uses, max_size=1).map(tuple),
    )


policies = _policies(("binpack", "spread", "none"), st.just(()), st.nothing())
"""The policies of the specification's text, which `tests.oracle` knows."""
every_policy = _policies(
    tuple(POLICIES), st.one_of(st.just(()), mixes), _placing_tiers.map(_one_tier)
)


terms_policies = st.builds(
    lambda policy, tiers: msgspec.structs.replace(policy, tiers=tiers),
    policies,
    st.one_of(st.just(BUILT_IN_TIERS), *[_placing_tiers.map(_one_tier)] * 3),
)
"""The same with plugins that score."""


@st.composite
def pods(
    draw: st.DrawFn,
    uid: str = "a",
    rv: int = 1,
    wanted: st.SearchStrategy[PodRequest] = requests,
) -> PodObserved:
    """A pending pod, mostly ours."""
    return build.pod(
        uid,
        draw(wanted),
        rv=rv,
        priority=draw(st.sampled_from((0, 0, 10))),
        created_ms=draw(st.integers(0, 3)),
        gated=draw(st.integers(0, 9)) == 0,
        scheduler=draw(st.sampled_from(("allotment", "allotment", "allotment", "other"))),
        tags=draw(st.sampled_from(((), (), TAGS[:1], TAGS[1:2], TAGS))),
        owner=draw(st.sampled_from(("", "job"))),
        labels=draw(st.sampled_from(((), (("app", "web"),), (("app", "db"),), (("app", "x"),)))),
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
        st.sampled_from(PODS).flatmap(lambda uid: pods(uid, wanted=every_request)),
        st.builds(NodeGone, name=names, uid=names, rv=numbers),
        st.builds(PodGone, **named, rv=numbers),
        st.builds(PolicyLoaded, policy=every_policy, source=names, text_sha256=names),
        st.builds(MixLearned, policy=names, mix=mixes, pods=numbers),
        st.builds(
            ConfigurationChecked,
            kind=st.sampled_from(("scheduler", "device")),
            source=names,
            problems=st.lists(st.builds(Problem, names, names, names), max_size=2).map(tuple),
        ),
        st.builds(TimePassed, at_ms=numbers),
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
            request=every_request,
            problem=st.none() | st.builds(Problem, names, names, names),
        ),
    )


calm_request = _requests(st.just(Constraints()))


@st.composite
def lives(draw: st.DrawFn, policy: st.SearchStrategy[Policy]) -> list[Event]:
    """A policy, nodes with cards, pods that wait, most of them for what there is; then what happens
    to them: pods that leave and come back asking for something else, nodes that change, leave and
    join, and seldom another policy.
    """

    def pod(uid: str) -> PodObserved:
        return draw(pods(uid, wanted=calm_request if draw(st.booleans()) else every_request))

    def loaded() -> list[Event]:
        chosen = draw(policy)
        learned = MixLearned(policy=chosen.device_policy, mix=chosen.mix, pods=1)
        return [PolicyLoaded(policy=chosen, source="test", text_sha256=""), learned]

    events: list[Event] = [*loaded(), *(draw(nodes(name)) for name in NODES), *map(pod, PODS)]
    for word in draw(
        st.lists(st.sampled_from(("pod", "pod", "node", "gone", "policy")), max_size=8)
    ):
        name, uid = draw(st.sampled_from(NODES)), draw(st.sampled_from(PODS))
        match word:
            case "pod":
                events += [PodGone(uid=uid, namespace="", name="", rv=1), pod(uid)]
            case "node":
                events.append(draw(nodes(name)))
            case "gone":
                events.append(NodeGone(name=name, uid=f"uid-{name}", rv=1))
            case _:
                events += loaded()
    return events
