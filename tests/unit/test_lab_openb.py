"""The trace's CSV files: what a row becomes, and that every mistake is named with its place."""

import pytest

from allotment.core.placement.devices import FAMILIES
from allotment.core.placement.devices.choosing import model_wanted
from allotment_lab.openb import (
    KNOWN_OF_PODS,
    MIB,
    NODE_COLUMNS,
    parse_nodes,
    parse_pods,
    strange_columns,
)
from allotment_lab.workload import WorkloadError

NODES = """sn,cpu_milli,memory_mib,gpu,model
n0,64000,262144,2,V100M16
n1,32000,131072,0,
"""
PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,\
deletion_time,scheduled_time
a,6000,12288,1,460,V100M16|P100,LS,Running,5,9,6
b,1000,2048,0,0,,BE,Pending,7,7,
c,1000,2048,8,1000,,BE,Running,7,,
"""


def test_a_node_has_its_cards_in_thousandths() -> None:
    with_cards, without = parse_nodes(NODES, "nodes.csv")
    (inventory,) = with_cards.inventories
    card = inventory.cards[1]
    assert (card.id, card.index, card.memory_mib, card.slots, card.cores_pct) == (
        "n0/1",
        1,
        1000,
        1000,
        100,
    )
    assert FAMILIES["vgpu"].accepts_model(card.model)
    assert (with_cards.cpu_milli, with_cards.memory_bytes) == (64_000, 262_144 * MIB)
    assert without.inventories == ()


def test_a_pod_asks_for_thousandths_of_every_card() -> None:
    (a, b, c), is_timed = parse_pods(PODS, "pods.csv")
    (ask,) = a.fact.request.devices
    assert (ask.count, ask.memory_mib, ask.memory_pct, ask.cores_pct) == (1, 460, 0, 0)
    assert (a.created_s, a.deleted_s) == (5, 9)
    assert b.fact.request.devices == ()
    assert (b.created_s, b.deleted_s) == (7, 7)
    assert c.fact.request.devices[0].count == 8
    assert c.deleted_s is None
    assert is_timed


@pytest.mark.parametrize(("model", "accepted"), [("V100M16", True), ("V100M1", False)])
def test_a_model_is_matched_whole(model: str, accepted: bool) -> None:
    (node,) = parse_nodes(NODES.replace("V100M16", model).split("n1")[0], "nodes.csv")
    (pod, *_), _ = parse_pods(PODS, "pods.csv")
    found = node.inventories[0].cards[0].model
    assert model_wanted(found, pod.fact.request.selection) == accepted


def test_a_wrong_number_of_cards_is_told_alone() -> None:
    with pytest.raises(WorkloadError) as raised:
        parse_pods("name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,x,500\n", "pods.csv")
    assert [found.split(";")[0] for found in raised.value.problems] == [
        "pods.csv:2, column num_gpu: is 'x'"
    ]


def test_five_columns_are_enough_but_say_no_times() -> None:
    arrivals, is_timed = parse_pods(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,1,1000\n", "p"
    )
    assert arrivals[0].fact.request.selection.use_types is None
    assert not is_timed


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("a,x,1,1,500", "pods.csv:2, column cpu_milli: is 'x'; wanted: a whole number from 0 to"),
        ("a,1,-1,1,500", "pods.csv:2, column memory_mib: is '-1'; wanted: a whole number from 0"),
        ("a,1,1,65,500", "pods.csv:2, column num_gpu: is '65'; wanted: a whole number from 0 to"),
        ("a,1,1,1,1001", "pods.csv:2, column gpu_milli: is '1001'; wanted: a whole number from 1"),
        (
            "a,1,1,1,0",
            "pods.csv:2, column gpu_milli: is '0'; wanted: a whole number from 1 to 1000",
        ),
        ("a,1,1,0,5", "pods.csv:2, column gpu_milli: is '5'; wanted: 0"),
        (",1,1,0,0", "pods.csv:2, column name: is empty; wanted: the pod's name"),
        ("a,1,1,0", "pods.csv:2: has 4 values; wanted: 5, as many as columns"),
        ("a", "pods.csv:2: has 1 value; wanted: 5, as many as columns"),
        ("a,1,1,1," + 99 * "7", f"column gpu_milli: is '{59 * '7'}…; wanted: a whole number from"),
        (
            "a,1,1,0,0\na,1,1,0,0",
            "column name: is 'a'; wanted: another name than that of pods.csv:2",
        ),
        ("", "pods.csv: has no rows; wanted: at least one pod"),
    ],
)
def test_a_mistake_in_a_pod_is_named(row: str, problem: str) -> None:
    with pytest.raises(WorkloadError) as raised:
        parse_pods(f"name,cpu_milli,memory_mib,num_gpu,gpu_milli\n{row}\n", "pods.csv")
    assert any(problem in found for found in raised.value.problems), raised.value.problems


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (PODS.replace("P100,", "|P100,"), "pods.csv:2, column gpu_spec: is 'V100M16||P100'"),
        (
            PODS.replace(",5,9,", ",5,4,"),
            "column deletion_time: is '4'; wanted: a whole number from 5, the creation_time, to 1",
        ),
        (PODS.replace(",5,9,", ",,9,"), "pods.csv:2, column creation_time: is ''; wanted"),
        (
            PODS.replace("num_gpu", "gpus"),
            "pods.csv:1: columns are 'name,cpu_milli,memory_mib",
        ),
        (PODS.replace("qos", "name"), "wanted: each once, at least name,cpu_milli"),
        ("", "pods.csv:1: columns are ''"),
        (PODS.replace("num_gpu", "gpus"), "gpu_milli; missing: num_gpu"),
    ],
)
def test_a_mistake_in_the_other_columns_is_named(text: str, problem: str) -> None:
    with pytest.raises(WorkloadError) as raised:
        parse_pods(text, "pods.csv")
    assert problem in str(raised.value)


@pytest.mark.parametrize("quoted", ['"b,1000', 'b,"1000'])
@pytest.mark.parametrize("more", [2, 20_000])
def test_a_quote_that_is_not_closed_is_told_where_it_is_opened(quoted: str, more: int) -> None:
    text = PODS.replace("b,1000", quoted) + "".join(f"m{n},1,1,0,0,,,,1,,\n" for n in range(more))
    with pytest.raises(WorkloadError) as raised:
        parse_pods(text, "pods.csv")
    assert raised.value.problems == [
        'pods.csv:3: a quote is not closed; wanted: " at both ends of a value'
    ]


def test_a_value_without_end_is_no_value() -> None:
    with pytest.raises(WorkloadError, match=r"^pods\.csv:3: a value is too long; wanted: values"):
        parse_pods(PODS.replace("b,1000", 200_000 * "b" + ",1000"), "pods.csv")


def test_columns_that_are_not_read_are_told() -> None:
    assert strange_columns(PODS, "pods.csv", KNOWN_OF_PODS) == []
    assert strange_columns(NODES, "nodes.csv", NODE_COLUMNS) == []
    text = "\ufeff" + PODS.replace("gpu_spec", "GPU_Spec")
    assert strange_columns(text, "pods.csv", KNOWN_OF_PODS) == [
        "pods.csv:1: column 'GPU_Spec' is not known and not read; did you mean gpu_spec?"
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (NODES.replace("V100M16", ""), "nodes.csv:2, column model: is ''; wanted: the model"),
        (NODES.replace("V100M16", "a|b"), "nodes.csv:2, column model: is 'a|b'; wanted: the model"),
        (NODES.replace("64000", "64.0"), "nodes.csv:2, column cpu_milli: is '64.0'; wanted: a"),
        (NODES.replace("n1", "n0"), "nodes.csv:3, column sn: is 'n0'; wanted: another name than"),
        (NODES.replace("n1,", ","), "nodes.csv:3, column sn: is empty"),
        (NODES.split("n0")[0], "nodes.csv: has no rows; wanted: at least one node"),
    ],
)
def test_a_mistake_in_a_node_is_named(text: str, problem: str) -> None:
    with pytest.raises(WorkloadError) as raised:
        parse_nodes(text, "nodes.csv")
    assert problem in str(raised.value)
