"""Tenants write device records where no admission policy keeps them from it: nobody else is served
with them for long, whoever did it is named, and his own cards are all that it costs the others."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError

import pytest

from allotment.core.explain.doctor import findings
from allotment.core.ledger.check import check
from allotment_proto.volcano import keys
from tests.e2e.audit import fold
from tests.e2e.stack import Json, Stack, vgpu

NODES = """
- {name: g, gpus: {model: Tesla T4, count: 4, memory_mib: 16000}, cpu: 64, memory: 256Gi}
- {name: h, gpus: {model: Tesla T4, count: 1, memory_mib: 16000}, cpu: 64, memory: 256Gi}
"""
MERGE_PATCH = "application/merge-patch+json"
PODS = "/api/v1/namespaces/default/pods"
ON_G: Json = {"nodeSelector": {"kubernetes.io/hostname": "g"}}
REWRITES_EVERY_S = 0.01


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with Stack(tmp_path, NODES) as running:
        yield running


def bind(stack: Stack, name: str, node: str) -> None:
    target = {"kind": "Node", "name": node}
    stack.call("POST", f"{PODS}/{name}/binding", {"metadata": {"name": name}, "target": target})


def cards(stack: Stack, node: str = "g") -> list[Json]:
    return [card for card in stack.books()["cards"] if card["node"] == node]


def forged(stack: Stack, card: int = 0, memory_mib: int = 15_000) -> Json:
    """A record that is served before any other."""
    return {
        keys.DEVICES_TO_ALLOCATE: f"{cards(stack)[card]['card']},NVIDIA,{memory_mib},100:;",
        keys.BIND_PHASE: keys.PHASE_ALLOCATING,
        keys.VGPU_NODE: "g",
        keys.VGPU_TIME: "1",
        keys.BIND_TIME: "1",
    }


def run(stack: Stack, *names: str) -> None:
    def all_run() -> bool:
        return all(stack.pod(name)["status"].get("phase") == "Running" for name in names)

    stack.until(all_run, f"{', '.join(names)} run")


def found(stack: Stack) -> dict[str, set[str]]:
    """What doctor finds, by subject."""
    state = fold(stack.records())
    assert check(state) == []
    said: dict[str, set[str]] = {}
    for one in findings(state, state.time_ms):
        said.setdefault(one.subject, set()).add(one.code)
    return said


def held_mib(stack: Stack, name: str) -> dict[str, int]:
    """What the device plugins handed out to a pod, by card."""
    uid = stack.pod(name)["metadata"]["uid"]
    return {
        card["card"]: holder["memory_mib"]
        for card in stack.books()["cards"]
        for holder in card["holders"]
        if holder["uid"] == uid
    }


class Rewriting:
    """The owner of a pod writes its record anew, for as long as the block lasts."""

    def __init__(self, stack: Stack, name: str) -> None:
        self._over = threading.Event()
        self._body = {"metadata": {"annotations": forged(stack)}}
        self._stack, self._path = stack, f"{PODS}/{name}"
        self._thread = threading.Thread(target=self._rewrite, daemon=True)

    def _rewrite(self) -> None:
        while not self._over.wait(REWRITES_EVERY_S):
            with suppress(HTTPError):  # the pod is gone
                self._stack.call("PATCH", self._path, self._body, MERGE_PATCH)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def test_a_record_that_is_written_anew_for_ever(stack: Stack) -> None:
    stack.create_pod("thief", vgpu(1000, 10), **ON_G)
    run(stack, "thief")
    with Rewriting(stack, "thief"):
        stack.until(lambda: fold(stack.records()).nodes["g"].forgers != set(), "g is left alone")
        for name in ("a", "b", "c"):
            stack.create_pod(name, vgpu(1000, 10), **ON_G)
        stack.create_pod("free", vgpu(1000, 10))
        run(stack, "free")
        assert stack.pod("free")["spec"]["nodeName"] == "h"
        stack.until(lambda: "RecordForged" in stack.refusal("a"), "the reason is named")
        assert "thief" not in stack.refusal("a"), "whose pod it is they need not know"
        assert stack.events("thief", "RecordForged")
        assert "RecordForged" in found(stack)["pod default/thief"]
        assert stack.metric("binder", 'allot_record_forgers{node="g"}') == 1
        counts = stack.books()["counts"]
        assert (counts["Misdelivered"], counts["Oversold"]) == (0, 0)
        stack.delete_pod("thief")
    run(stack, "a", "b", "c")
    assert stack.books()["counts"]["Misdelivered"] == 0


@pytest.mark.parametrize("spec", [{"nodeName": "g"}, {}], ids=["bound", "never bound"])
def test_a_record_on_a_pod_that_asks_for_no_card(stack: Stack, spec: Json) -> None:
    stack.create_pod("thief", {}, annotations=forged(stack), scheduler="other", **spec)
    stack.until(
        lambda: "," not in stack.pod("thief")["metadata"]["annotations"][keys.DEVICES_TO_ALLOCATE],
        "it is erased, though nobody waits for it",
    )
    for name in ("a", "b"):
        stack.create_pod(name, vgpu(1000, 10), **ON_G)
    run(stack, "a", "b")
    counts = stack.books()["counts"]
    assert (counts["Misdelivered"], counts["Oversold"]) == (0, 0)
    said = found(stack)
    assert said["pod default/thief"] == {"RecordForged"}
    assert said.keys() & {"pod default/a", "pod default/b"} == set()


def test_who_serves_himself_more_than_he_may_have_is_booked_with_it(stack: Stack) -> None:
    record = forged(stack)
    stack.create_pod("thief", vgpu(100), annotations=record, scheduler="other", nodeName="g")
    run(stack, "thief")
    (given,) = held_mib(stack, "thief").items()
    assert given[1] == 15_000, "nobody could keep the plugin from it"
    stack.until(lambda: "RecordForged" in found(stack).get("pod default/thief", ()), "it is said")
    state = fold(stack.records())
    booked = state.pods[stack.pod("thief")["metadata"]["uid"]].allocation
    assert booked is not None
    assert [(held.card, held.memory_mib) for held in booked.holdings] == [given]
    names = [f"v{number}" for number in range(3)]
    for name in names:
        stack.create_pod(name, vgpu(14_000), **ON_G)
    run(stack, *names)
    assert stack.books()["counts"]["Oversold"] == 0


def test_a_claim_that_nobody_can_read_costs_the_card_that_its_pod_gets(stack: Stack) -> None:
    """The pod is bound once the log has its record: its plugin erases it, and where the watcher
    never saw it, the pod's share is kept on each card that it can be on.
    """
    record = {**forged(stack), keys.VGPU_IDS: "???"}
    stack.create_pod("one", vgpu(15_000), annotations=record, scheduler="other")
    uid = stack.pod("one")["metadata"]["uid"]
    stack.until(lambda: uid in fold(stack.records()).pods, "the log has the pod")
    bind(stack, "one", "g")
    run(stack, "one")
    names = [f"v{number}" for number in range(3)]
    for name in names:
        stack.create_pod(name, vgpu(15_000), **ON_G)
    run(stack, *names)
    counts = stack.books()["counts"]
    assert (counts["Misdelivered"], counts["Oversold"]) == (0, 0)
