"""What tenants may read of each other in the binder's texts: nothing."""

import re

import pytest

from allotment.core.explain.causes.why import Whys
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.logport import Record
from allotment.core.reasons import INSUFFICIENT_CPU, cut
from allotment_binder.causes import told
from allotment_binder.notices import Refused
from allotment_binder.readers import Readers
from allotment_proto.events import Envelope, Refusal
from tests import build


def readers(*namespaces: str) -> Readers:
    found = Readers()
    events = tuple(build.pod(name, namespace=name) for name in namespaces)
    envelope = Envelope(at_ms=1, by="test", events=events)
    found.on_record(Record(1, "allot.log.facts", b"", 1, ""), envelope)
    return found


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("room is made for pod blue/x-0", "room is made for a pod of another namespace"),
        ("kept for blue/x.y until", "kept for a workload of another namespace until"),
        ("held for blue/x, which waits", "held for a workload of another namespace, which waits"),
        ("pod red/own and pod blue/x", "pod red/own and a pod of another namespace"),
        ("(blue/x)", "(a workload of another namespace)"),
        ("blue/a; blue/b.", "a workload of another namespace; a workload of another namespace."),
        ("0/5 nodes are available: 5 NoGPU.", "0/5 nodes are available: 5 NoGPU."),
        ("gang blue/x_y waits", "a gang of another namespace waits"),
        (
            "'blue/x/worker', blue/X;",
            "'a workload of another namespace', a workload of another namespace;",
        ),
        ("in use by blue/…", "in use by a workload of another namespace…"),
        ("volcano.sh/vgpu-memory: 4096", "volcano.sh/vgpu-memory: 4096"),
        ("node gpu-01/0", "node gpu-01/0"),
        ("\x1b[31mred\u202e", "\\x1b[31mred\\u202e"),
    ],
)
def test_names_of_other_namespaces_are_left_out(text: str, read: str) -> None:
    assert readers("red", "blue", "0", "1").text("red", text) == read


def test_a_reader_of_both_namespaces_reads_each_on_its_own() -> None:
    both = readers("red", "blue")
    assert both.text("blue", "pod red/a, pod blue/b") == "a pod of another namespace, pod blue/b"


def test_what_was_there_before_is_known_too() -> None:
    world = build.state_of(build.node("n1"), build.pod("a", namespace="blue"))
    found = Readers()
    found.begin(world)
    assert "blue" not in found.text("red", "kept for blue/a")


def crowded(long: int) -> ClusterState:
    """A pod that found no room beside pods of another namespace, whose names are so long."""
    wants, holds = build.request(cpu_milli=4_000), build.request(cpu_milli=2_500)
    holders = [
        build.pod(f"h{n}", holds, namespace="blue", name=f"{n}" * long, node="n1") for n in range(3)
    ]
    world = build.state_of(build.node("n1"), *holders, build.pod("r", wants, namespace="red"))
    refusal = Refusal("r", "red", "pod-r", nodes=1, reasons=((INSUFFICIENT_CPU, 1),))
    apply(world, build.decided(batch=("r",), refusals=(refusal,)), world.seq + 1)
    return world


@pytest.mark.parametrize("long", [8, 253])
def test_a_text_that_is_cut_ends_with_its_command_and_names_nobody_else(long: int) -> None:
    """Names were left out after the cut, which could fall into the middle of one."""
    world, known = crowded(long), readers("red", "blue")
    counted = "0/1 nodes are available: 1 InsufficientCPU."
    for filler in range(0, 900, 7):
        note = Refused("r", "red", "pod-r", f"{'x ' * filler}{counted}", is_news=True)
        said = known.text("red", told(world, Whys(world), note, known))
        assert said.endswith("Ask: allot explain pod red/pod-r"), said
        assert len(said) <= 1_000
        assert "in use by a workload of another namespace" in said
        assert re.search(r"\bb(l|lu|lue)?\b", said) is None


def test_a_text_is_cut_between_two_words() -> None:
    for before in range(970, 1_000):
        kept = cut(f"{'y' * before} blue/hog and others").removeprefix("y" * before)
        assert kept in {"…", " blue/hog…", " blue/hog and…", " blue/hog and others"}
