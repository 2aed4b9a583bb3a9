"""Whatever stands on a pod or a node, it becomes a fact; read twice it becomes the same."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from allotment.core.placement.devices import FAMILIES
from allotment_proto.facts import Policy
from allotment_proto.volcano import keys
from allotment_watcher.normalise import ASKED, ASKED_LABELS, BUILT_IN
from tests.unit.kube_json import container, node, node_json, pod_json, seen

RESOURCES = sorted(set[str]().union(*(f.resources(BUILT_IN) for f in FAMILIES.values())))
ANNOTATIONS = (
    *sorted(ASKED),
    keys.VGPU_IDS,
    keys.NPU_CORE,
    keys.ASCEND_REAL,
    keys.PODGROUP_POLICY,
    keys.GROUP_NAME,
    keys.hami_allocated("Ascend310P"),
    keys.ascend_detail("Ascend310P"),
)
TEXTS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        (
            "",
            "0",
            "0,1",
            "0-vir02",
            "spread",
            "mig",
            "hami-core",
            "GPU-a,NVIDIA,1,2:",
            "GPU-a[group2-1],NVIDIA,1,2:;GPU-b,NVIDIA,1,2:",
            "GPU-a[group2],NVIDIA,1,2:",
            "C-0,Ascend310P,3072,0:;",
            '[{"UUID": "C-0", "temp": "vir01"}]',
        )
    ),
)
AMOUNTS = st.dictionaries(
    st.sampled_from(RESOURCES), st.sampled_from((0, 1, 2, 8, 100, "x", "-1", "1.5")), max_size=3
)
POLICIES = st.builds(
    Policy,
    multi_container=st.booleans(),
    gpushare_kind=st.sampled_from(("", "memory", "number")),
    exclusive_rules=st.sampled_from(((), ((("app", "a"),),))),
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(AMOUNTS, AMOUNTS), max_size=3),
    st.dictionaries(st.sampled_from(ANNOTATIONS), TEXTS, max_size=5),
    st.dictionaries(st.sampled_from(("app", *sorted(ASKED_LABELS))), st.just("a"), max_size=2),
    st.sampled_from((None, "n1")),
    POLICIES,
)
def test_any_pod_becomes_a_fact(
    amounts: list[tuple[dict[str, Any], dict[str, Any]]],
    annotations: dict[str, str],
    labels: dict[str, str],
    place: str | None,
    policy: Policy,
) -> None:
    containers = [container(f"c{i}", *both) for i, both in enumerate(amounts)]
    document = pod_json(*containers, annotations=annotations, nodeName=place)
    document["metadata"]["labels"] = labels
    fact = seen(document, policy)
    assert fact == seen(document, policy)
    assert set(fact.request.apart) <= set(fact.tags)
    if fact.problem is not None:
        assert fact.request.devices == ()
    if place is None:
        assert (fact.holdings, fact.broken, fact.bind_phase) == ((), None, "")
    if not any(limits or requests for limits, requests in amounts):
        assert (fact.problem, fact.broken) == (None, None)


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(
            (
                keys.NODE_VGPU_REGISTER,
                keys.hami_register("Ascend310P"),
                keys.NPU_BASE_DEVICES,
                keys.GPU_UNHEALTHY_IDS,
                keys.HAMI_SOFT_SLICING,
            )
        ),
        TEXTS | st.sampled_from(("[]", "{}", "[1]", "GPU-a,10,1,NVIDIA,true,mig:", '{"x": 1}')),
    ),
    AMOUNTS,
    st.dictionaries(
        st.sampled_from((keys.LABEL_SERVER_TYPE, keys.LABEL_ACCELERATOR, keys.LABEL_CHIP_NAME)),
        st.sampled_from(("", "a-b-c", "Ascend310P-8", "huawei-Ascend310P", "Ascend310P-99999")),
    ),
    st.dictionaries(st.sampled_from(("a", "a/cluster-info-device-0/x", "//")), TEXTS, max_size=2),
)
def test_any_node_becomes_a_fact(
    annotations: dict[str, str],
    amounts: dict[str, Any],
    labels: dict[str, str],
    device_info: dict[str, str],
) -> None:
    document = node_json(annotations, amounts)
    document["metadata"]["labels"] = labels
    fact = node(document, device_info=device_info)
    for inventory in fact.inventories:
        assert inventory.cards
        assert len({card.id for card in inventory.cards}) == len(inventory.cards)
