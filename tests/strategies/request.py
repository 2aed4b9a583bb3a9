"""What pods ask for: devices, which of them, which nodes, and whose company."""

from typing import Any

import msgspec
from hypothesis import strategies as st

from allotment_proto.facts import (
    ALONE,
    Attachment,
    Company,
    Constraints,
    DeviceRequest,
    Expression,
    HostPort,
    NodeTerm,
    PodPreference,
    PodRequest,
    PodTerm,
    Preference,
    Selection,
    Spread,
    Toleration,
    Typical,
)
from tests import build

TAGS = ("group:default/g", "exclusive:app=a", "exclusive:app=b")


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
            Selection(pieces_below_mib=4_000),
            Selection(mode="mig", pieces_below_mib=8_000),
            Selection(use_types=("A100", "T4"), counted=("nvidia.com/gpu",)),
            Selection(nouse_types=("T4",), counted=("example.com/x", "nvidia.com/gpu")),
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
        sole=st.sampled_from(((), (), ("default/c1",), ("default/c1", "default/c2"))),
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
calm_request = _requests(st.just(Constraints()))
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
    unrequested=st.sampled_from(((0, 0), (0, 0), (100, 200 << 20))),
)
"""With rules about other pods, volumes, and preferences, too."""
mixes = st.lists(
    st.builds(Typical, requests, st.integers(0, 1_000_000), st.integers(0, 8_000)), max_size=3
).map(tuple)
