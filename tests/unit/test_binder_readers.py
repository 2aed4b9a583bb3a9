"""What tenants may read of each other in the binder's texts: nothing."""

import pytest

from allotment.core.logport import Record
from allotment_binder.readers import Readers
from allotment_proto.events import ENVELOPE_VERSION, Envelope
from tests import build


def readers(*namespaces: str) -> Readers:
    found = Readers()
    events = tuple(build.pod(name, namespace=name) for name in namespaces)
    envelope = Envelope(v=ENVELOPE_VERSION, at_ms=1, by="test", events=events)
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
        ("volcano.sh/vgpu-memory: 4096", "volcano.sh/vgpu-memory: 4096"),
        ("node gpu-01/0", "node gpu-01/0"),
        ("\x1b[31mred\u202e", "\\x1b[31mred\\u202e"),
    ],
)
def test_names_of_other_namespaces_are_left_out(text: str, read: str) -> None:
    assert readers("red", "blue", "1").text("red", text) == read


def test_a_reader_of_both_namespaces_reads_each_on_its_own() -> None:
    both = readers("red", "blue")
    assert both.text("blue", "pod red/a, pod blue/b") == "a pod of another namespace, pod blue/b"


def test_what_was_there_before_is_known_too() -> None:
    world = build.state_of(build.node("n1"), build.pod("a", namespace="blue"))
    found = Readers()
    found.begin(world)
    assert "blue" not in found.text("red", "kept for blue/a")
