"""No pod is served with another's cards, whatever becomes of pods between Binding and Allocate.

The fake device plugins pick by time and number of devices alone, and their own books say who got
cards that were another pod's.
"""

import signal
from pathlib import Path

from allotment.core.explain.doctor import findings
from allotment.core.ledger.check import check
from allotment.core.ledger.model import FORGED_MOST
from tests.e2e.audit import assert_not_oversold, fold
from tests.e2e.stack import Json, Stack, vgpu

NODES = (
    "- {name: g, gpus: {model: Tesla T4, count: 8, memory_mib: 16000}, cpu: 64, memory: 256Gi}\n"
)
MERGE_PATCH = "application/merge-patch+json"
FORBIDDEN: Json = {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}
FORCE = {"gracePeriodSeconds": 0}
PODS = "/api/v1/namespaces/default/pods"


def allocate_takes(stack: Stack, lasting: str) -> None:
    stack.patch_node("g", {"metadata": {"annotations": {"allotment.dev/allocate-time": lasting}}})


def fault(stack: Stack, text: str | None) -> None:
    stack.patch_node("g", {"metadata": {"annotations": {"allotment.dev/fault": text}}})


def phase(stack: Stack, name: str) -> str:
    return str(stack.pod(name)["status"]["phase"])


def bind_phase(stack: Stack, name: str) -> str:
    return str((stack.pod(name)["metadata"].get("annotations") or {}).get("volcano.sh/bind-phase"))


def say_of(stack: Stack, name: str, annotations: Json) -> None:
    """What a pod's owner may do: edit its annotations."""
    stack.call("PATCH", f"{PODS}/{name}", {"metadata": {"annotations": annotations}}, MERGE_PATCH)


def until_running(stack: Stack, *names: str) -> None:
    def all_run() -> bool:
        return all(phase(stack, name) == "Running" for name in names)

    stack.until(all_run, f"{names} run")


def assert_delivered(stack: Stack) -> None:
    """Every container got its own pod's cards, and the log agrees with the plugins' own books."""
    books = stack.books()
    assert books["counts"]["Misdelivered"] == books["counts"]["Oversold"] == 0, books["incidents"]
    assert_not_oversold(stack.pods(), stack.call("GET", "/api/v1/nodes")["items"])
    assert_agree(stack)


def assert_agree(stack: Stack) -> None:
    def cards() -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
        given = {
            (holder["uid"], card["card"])
            for card in stack.books()["cards"]
            for holder in card["holders"]
        }
        state = fold(stack.records())
        assert check(state) == []
        booked = {
            (uid, held.card)
            for uid, pod in state.pods.items()
            if pod.allocation is not None
            for held in pod.allocation.holdings
        }
        return given, booked

    stack.until(lambda: len(set(map(frozenset, cards()))) == 1, "log and plugins agree")


def test_a_pod_with_a_forbidden_sysctl(tmp_path: Path) -> None:
    with Stack(tmp_path, NODES) as stack:
        for name in "abc":
            stack.create_pod(f"dead-{name}", vgpu(1000, 100), **FORBIDDEN)
            stack.create_pod(name, vgpu(2000, 100))
        until_running(stack, "a", "b", "c")
        stack.until(
            lambda: {phase(stack, f"dead-{name}") for name in "abc"} == {"Failed"},
            "kubelet refuses the others",
        )
        assert_delivered(stack)


def test_a_pod_refused_after_its_allocate(tmp_path: Path) -> None:
    with Stack(tmp_path, NODES) as stack:
        allocate_takes(stack, "500ms")
        stack.create_pod("dead", vgpu(1000, 100))
        stack.until(lambda: "dead" in stack.bound(), "it is bound")
        status = {"allocatable": {"pods": "0"}}
        stack.call("PATCH", "/api/v1/nodes/g/status", {"status": status}, MERGE_PATCH)
        stack.until(lambda: phase(stack, "dead") == "Failed", "it is refused")
        status = {"allocatable": {"pods": "110"}}
        stack.call("PATCH", "/api/v1/nodes/g/status", {"status": status}, MERGE_PATCH)
        for name in "abc":
            stack.create_pod(name, vgpu(2000, 100))
        until_running(stack, "a", "b", "c")
        assert_delivered(stack)


def test_a_pod_deleted_by_force_while_another_is_served(tmp_path: Path) -> None:
    """Kubelet admits it all the same: whoever was bound in its place would lose its record."""
    with Stack(tmp_path, NODES) as stack:
        allocate_takes(stack, "2s")
        stack.create_pod("two", vgpu(1000, 100, number=2))
        stack.until(lambda: "two" in stack.bound(), "two is bound")
        stack.create_pod("deleted", vgpu(1000, 100))
        stack.until(lambda: "deleted" in stack.bound(), "it waits for its turn")
        for name in "abc":
            stack.create_pod(name, vgpu(2000, 100))
        assert bind_phase(stack, "two") == "allocating"
        stack.call("DELETE", f"{PODS}/deleted", FORCE)
        until_running(stack, "two", "a", "b", "c")
        assert_delivered(stack)


def test_a_pod_deleted_by_force_while_no_binder_runs(tmp_path: Path) -> None:
    """The one that starts afterwards reads in the log that it is gone."""
    with Stack(tmp_path, NODES) as stack:
        allocate_takes(stack, "10s")
        stack.create_pod("two", vgpu(1000, 100, number=2))
        stack.until(lambda: "two" in stack.bound(), "two is bound")
        stack.create_pod("deleted", vgpu(1000, 100))
        stack.until(lambda: "deleted" in stack.bound(), "it waits for its turn")
        stack.kill("binder")
        uid = stack.pod("deleted")["metadata"]["uid"]
        stack.call("DELETE", f"{PODS}/deleted", FORCE)
        for name in "ab":
            stack.create_pod(name, vgpu(2000, 100))
        stack.until(lambda: uid not in fold(stack.records()).pods, "the log knows")
        allocate_takes(stack, "10ms")
        stack.start("binder")
        until_running(stack, "two", "a", "b")
        assert_delivered(stack)


def test_a_device_plugin_that_restarts(tmp_path: Path) -> None:
    with Stack(tmp_path, NODES) as stack:
        allocate_takes(stack, "500ms")
        fault(stack, "plugin-restarts")
        names = [f"p{number}" for number in range(5)]
        for name in names:
            stack.create_pod(name, vgpu(1000, 100))
        stack.until(lambda: phase(stack, "p1") == "Failed", "two are refused")
        fault(stack, None)
        stack.until(
            lambda: {phase(stack, name) for name in names} <= {"Running", "Failed"}, "all ended"
        )
        stack.create_pod("last", vgpu(2000, 100))
        until_running(stack, "last")
        assert_delivered(stack)


def test_kubelets_that_list_their_pods_afresh(tmp_path: Path) -> None:
    with Stack(tmp_path, NODES) as stack:
        fault(stack, "watch-lost")
        for number in (1, 2):
            for name in "abc":
                stack.create_pod(f"{name}{number}", vgpu(1000, 100 // number, number=number))
        stack.until(lambda: len(stack.bound()) == 2, "one of each number is bound")
        fault(stack, None)
        until_running(stack, *(f"{name}{number}" for name in "abc" for number in (1, 2)))
        assert_delivered(stack)


def test_a_node_that_goes_and_comes_back(tmp_path: Path) -> None:
    with Stack(tmp_path, NODES) as stack:
        node = stack.call("GET", "/api/v1/nodes/g")
        allocate_takes(stack, "1s")
        stack.create_pod("dead", vgpu(1000, 100), **FORBIDDEN)
        stack.create_pod("a", vgpu(1000, 100))
        stack.create_pod("two", vgpu(1000, 100, number=2))
        stack.until(lambda: "two" in stack.bound(), "two is bound")
        fault(stack, "node-gone")
        stack.create_pod("b", vgpu(2000, 100))
        metadata = {"name": "g", "annotations": node["metadata"]["annotations"]}
        body = {"kind": "Node", "metadata": metadata, "status": node["status"]}
        stack.call("POST", "/api/v1/nodes", body)
        stack.create_pod("c", vgpu(3000, 100))
        until_running(stack, "a", "b", "c", "two")
        assert_delivered(stack)


def test_an_owner_who_says_that_a_pod_was_served_which_kubelet_then_refuses(
    tmp_path: Path,
) -> None:
    with Stack(tmp_path, NODES) as stack:
        allocate_takes(stack, "2s")
        stack.create_pod("two", vgpu(1000, 100, number=2))
        stack.until(lambda: "two" in stack.bound(), "two is bound")
        stack.create_pod("liar", vgpu(1000, 100), **FORBIDDEN)
        stack.until(lambda: "liar" in stack.bound(), "it waits for its turn")
        say_of(stack, "liar", {"volcano.sh/bind-phase": "success"})
        for name in "abc":
            stack.create_pod(name, vgpu(2000, 100))
        until_running(stack, "two", "a", "b", "c")
        assert_delivered(stack)


def anew(stack: Stack, name: str) -> Json:
    """What makes the plugin serve a pod's record once more, before any other."""
    assignment = stack.pod(name)["metadata"]["annotations"]["volcano.sh/vgpu-ids-new"]
    return {"volcano.sh/devices-to-allocate": assignment, "volcano.sh/vgpu-time": "1"}


def test_a_pod_that_was_served_with_anothers_record_is_found_out_and_booked(
    tmp_path: Path,
) -> None:
    """An owner makes a served record stand again while nobody looks; the next pod gets it."""
    with Stack(tmp_path, NODES) as stack:
        stack.create_pod("hostile", vgpu(1000, 10))
        until_running(stack, "hostile")
        allocate_takes(stack, "1s")
        stack.create_pod("two", vgpu(1000, 100, number=2))
        stack.until(lambda: "two" in stack.bound(), "two is bound")
        stack.create_pod("victim", vgpu(2000, 10))
        stack.until(lambda: "victim" in stack.bound(), "the victim waits for its turn")
        stack.processes["binder"].signal(signal.SIGSTOP)
        say_of(stack, "hostile", anew(stack, "hostile"))
        until_running(stack, "victim")
        assert stack.books()["counts"]["Misdelivered"] == 1
        stack.processes["binder"].signal(signal.SIGCONT)
        told: list[str] = []

        def is_told() -> bool:
            # A binder that was frozen for so long that it lost its lease knows the pod's state,
            # and not what led to it.
            told[:] = [c for c in ("Misdelivered", "DevicesUnknown") if stack.events("victim", c)]
            return bool(told)

        stack.until(is_told, "it is told")
        (code,) = told
        for name in "abc":
            stack.create_pod(name, vgpu(3000, 100))
        until_running(stack, "a", "b", "c")
        counts = stack.books()["counts"]
        assert (counts["Misdelivered"], counts["Oversold"]) == (1, 0)
        state = fold(stack.records())
        assert check(state) == []
        uid = stack.pod("victim")["metadata"]["uid"]
        held = state.pods[uid].allocation
        given = {
            card["card"]
            for card in stack.books()["cards"]
            for holder in card["holders"]
            if holder["uid"] == uid
        }
        assert held is not None
        if code == "Misdelivered":
            assert given <= {holding.card for holding in held.holdings}
        assert stack.metric("binder", "allot_misdelivered_total") == 1
        (found,) = [f for f in findings(state, 0) if f.subject == "pod default/victim"]
        assert (found.severity, found.code) == ("error", code)


def test_an_owner_who_writes_a_record_anew_once_or_twice_blocks_nobody(tmp_path: Path) -> None:
    """Who goes on has the node left alone (test_forged_records)."""
    with Stack(tmp_path, NODES) as stack:
        stack.create_pod("hostile", vgpu(1000, 10))
        until_running(stack, "hostile")
        again = anew(stack, "hostile")
        for number in range(FORGED_MOST - 1):
            say_of(stack, "hostile", again)
            stack.create_pod(f"p{number}", vgpu(1000, 10))
        until_running(stack, *(f"p{number}" for number in range(FORGED_MOST - 1)))


def test_who_says_that_he_was_not_served_after_he_was_is_not_believed(tmp_path: Path) -> None:
    with Stack(tmp_path, NODES) as stack:
        stack.create_pod("liar", vgpu(1000, 100))
        until_running(stack, "liar")
        say_of(stack, "liar", {"volcano.sh/bind-phase": "allocating"})
        stack.create_pod("a", vgpu(1000, 100))
        until_running(stack, "a")
        assert_delivered(stack)
        assert stack.metric("binder", "allot_misdelivered_total") == 0
