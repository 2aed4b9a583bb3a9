"""Binding one pod against a server that answers everything a real one may answer."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.contract.kube_server import (
    Answer,
    Script,
    client_of,
    hang_up,
    refuse,
    reply,
    scripted,
    slow,
)
from tests.waiting import patience

from allotment.core import reasons
from allotment.core.ledger.model import RESERVED, Allocation, ClusterState
from allotment.core.trace_ids import traceparent
from allotment_binder import bindings
from allotment_binder.bindings import Obstacle, Target, bind, obstacle_to
from allotment_proto.events import BindFailed, Bound
from allotment_proto.facts import Holding

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_blocking")]
POD = "/api/v1/namespaces/default/pods/trainer"
BINDING = f"{POD}/binding"
HOLDINGS = (Holding("vgpu", 0, "GPU-0a", 3000, 50), Holding("vgpu", 2, "GPU-0b", 4000, 0))
ALLOCATION = Allocation(
    "uid-1",
    "node.1",
    HOLDINGS,
    500,
    1 << 30,
    (("volcano.sh/vgpu-number", 2),),
    phase=RESERVED,
    seq=42,
    stamp_s=1_000,
)
TARGET = Target("default", "trainer", ALLOCATION)
OK = Bound(uid="uid-1", namespace="default", name="trainer", node="node.1", decision=42)
CREATED = reply({"kind": "Status", "status": "Success"}, 201)
CONFLICT = refuse(409, "Conflict", "pod trainer is already assigned")


def pod(node: str = "", seq: str | None = None, uid: str = "uid-1") -> Answer:
    annotations: dict[str, str] | None = None if seq is None else {"allotment.dev/log-seq": seq}
    spec: dict[str, Any] = {"nodeName": node} if node else {}
    return reply({"metadata": {"uid": uid, "annotations": annotations}, "spec": spec})


OURS = pod("node.1", "42")


async def ending(
    tmp_path: Path, *answers: Answer, look_first: bool = False, gone: bool = False, **options: Any
) -> tuple[Bound | BindFailed, Script]:

    async def prepare() -> Obstacle | None:
        return obstacle_to(ClusterState(), ALLOCATION) if gone else None

    async with scripted() as script, client_of(script, tmp_path, **options) as client:
        script.then(*answers)
        with patience():
            found = await bind(client, TARGET, 2_000, look_first=look_first, prepare=prepare)
        assert not script.answers, "not everything was asked"
    return found, script


def asked(script: Script) -> list[str]:
    return [f"{r.method} {r.path.removeprefix(POD) or 'pod'}" for r in script.requests]


def failed(found: Bound | BindFailed, code: str, words: str) -> None:
    """A failure repeats all that was reserved, so that it can be given back without a lookup."""
    assert isinstance(found, BindFailed), found
    assert found.code == code
    assert words in found.message
    assert (found.uid, found.node, found.decision) == ("uid-1", "node.1", 42)
    assert (found.holdings, found.cpu_milli, found.memory_bytes) == (HOLDINGS, 500, 1 << 30)
    assert found.extended == (("volcano.sh/vgpu-number", 2),)


async def test_accepted_and_the_exact_request(tmp_path: Path) -> None:
    found, script = await ending(tmp_path, CREATED)
    assert found == OK
    assert asked(script) == ["POST /binding"]
    assignment = "GPU-0a,NVIDIA,3000,50:;GPU-0b,NVIDIA,4000,0:"
    assert script.bodies == [
        {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": "trainer",
                "namespace": "default",
                "uid": "uid-1",
                "annotations": {
                    "allotment.dev/log-seq": "42",
                    "allotment.dev/traceparent": traceparent("uid-1"),
                    "volcano.sh/vgpu-node": "node.1",
                    "volcano.sh/vgpu-time": "1000",
                    "volcano.sh/vgpu-ids-new": assignment,
                    "volcano.sh/devices-to-allocate": assignment,
                    "volcano.sh/bind-phase": "allocating",
                    "volcano.sh/bind-time": "2000",
                },
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": "node.1"},
        }
    ]


async def test_shared_and_whole_cards_carry_their_own_annotations(tmp_path: Path) -> None:
    bodies = []
    for holdings in ((Holding("gpushare", 0, "3", 4096, 0),), ()):
        allocation = Allocation(
            "uid-1", "n", holdings, 0, 0, (), phase=RESERVED, seq=7, stamp_s=1_000
        )
        async with scripted() as script, client_of(script, tmp_path) as client:
            script.then(CREATED)
            target = Target("default", "trainer", allocation)
            await bind(client, target, 1, look_first=False, is_traced=False)
        bodies.append(script.bodies[0]["metadata"]["annotations"])
    assert bodies == [
        {
            "allotment.dev/log-seq": "7",
            "volcano.sh/gpu-index": "3",
            "volcano.sh/predicate-time": "1000000000000",
        },
        {"allotment.dev/log-seq": "7"},
    ]


async def test_a_conflict_because_it_is_bound_by_us_already_is_bound(tmp_path: Path) -> None:
    found, script = await ending(tmp_path, CONFLICT, OURS)
    assert found == OK
    assert asked(script) == ["POST /binding", "GET pod"]


@pytest.mark.parametrize(
    "there",
    [pod("other-node"), pod("other-node", "42"), pod("node.1", "41"), pod("node.1")],
    ids=["elsewhere", "our number elsewhere", "an older decision", "here without our number"],
)
async def test_a_conflict_because_others_bound_it_is_a_failure(
    tmp_path: Path, there: Answer
) -> None:
    found, _ = await ending(tmp_path, CONFLICT, there)
    failed(found, reasons.BIND_CONFLICT, "another client bound it")


async def test_a_conflict_because_it_is_being_deleted_is_a_failure_in_the_servers_words(
    tmp_path: Path,
) -> None:
    deleting = refuse(409, "Conflict", "pod trainer is being deleted")
    found, _ = await ending(tmp_path, deleting, pod())
    failed(found, reasons.BIND_CONFLICT, "is being deleted")


async def test_a_pod_made_anew_under_the_name_is_not_ours(tmp_path: Path) -> None:
    found, _ = await ending(tmp_path, CONFLICT, pod("node.1", "42", uid="uid-2"))
    failed(found, reasons.POD_GONE, "another pod has this name")
    found, _ = await ending(tmp_path, CONFLICT, pod(uid="uid-2"))
    failed(found, reasons.POD_GONE, "another pod has this name")


async def test_not_found_is_gone(tmp_path: Path) -> None:
    missing = refuse(404, "NotFound", 'pods "trainer" not found')
    found, script = await ending(tmp_path, missing)
    failed(found, reasons.POD_GONE, "not found")
    assert asked(script) == ["POST /binding"]
    found, _ = await ending(tmp_path, CONFLICT, missing)
    failed(found, reasons.POD_GONE, "not found")


@pytest.mark.parametrize("code", [400, 403, 422])
async def test_other_refusals_are_failures_in_the_servers_words(tmp_path: Path, code: int) -> None:
    found, script = await ending(tmp_path, refuse(code, "Nope", "may not bind pods"))
    failed(found, reasons.API_ERROR, f"{code} may not bind pods")
    assert asked(script) == ["POST /binding"]


async def test_a_very_long_refusal_is_cut(tmp_path: Path) -> None:
    found, _ = await ending(tmp_path, refuse(422, "Invalid", "x" * 100_000))
    assert isinstance(found, BindFailed)
    assert len(found.message) == 500


@pytest.mark.parametrize("code", [500, 503, 504])
async def test_a_server_error_after_the_write_is_settled_by_reading(
    tmp_path: Path, code: int
) -> None:
    found, script = await ending(tmp_path, refuse(code, "InternalError"), OURS)
    assert found == OK
    assert asked(script) == ["POST /binding", "GET pod"]


async def test_a_lost_answer_is_settled_by_reading(tmp_path: Path) -> None:
    found, script = await ending(tmp_path, hang_up, OURS)
    assert found == OK
    assert asked(script) == ["POST /binding", "GET pod"]


async def test_an_answer_that_never_comes_is_settled_by_reading(tmp_path: Path) -> None:
    found, _ = await ending(tmp_path, slow(5, CREATED), OURS, timeout_s=0.1)
    assert found == OK


@pytest.mark.parametrize("code", [403, 409, 422])
async def test_a_refusal_after_an_unanswered_request_gives_nothing_back(
    tmp_path: Path, code: int
) -> None:
    """The request that went unanswered may still be under way, and land after the refusal."""
    denied = refuse(code, "Forbidden", "not now")
    found, script = await ending(tmp_path, hang_up, pod(), denied, pod(), denied, OURS)
    assert found == OK
    assert asked(script) == ["POST /binding", "GET pod"] * 3


async def test_a_refusal_after_an_unanswered_request_ends_with_the_pod(tmp_path: Path) -> None:
    denied = refuse(403, "Forbidden", "not now")
    found, _ = await ending(tmp_path, hang_up, pod(), denied, refuse(404, "NotFound", "no pod"))
    failed(found, reasons.POD_GONE, "no pod")


async def test_a_refusal_of_what_an_earlier_life_may_have_sent_gives_nothing_back(
    tmp_path: Path,
) -> None:
    denied = refuse(403, "Forbidden", "not now")
    found, _ = await ending(tmp_path, pod(), denied, OURS, look_first=True)
    assert found == OK


async def test_a_lost_request_is_sent_again_word_for_word(tmp_path: Path) -> None:
    found, script = await ending(tmp_path, hang_up, pod(), CREATED)
    assert found == OK
    assert asked(script) == ["POST /binding", "GET pod", "POST /binding"]
    assert script.bodies[0] == script.bodies[2]


async def test_the_first_request_may_arrive_late_and_win(tmp_path: Path) -> None:
    """Not seen bound, sent again, refused: meanwhile the first one took effect after all."""
    found, script = await ending(tmp_path, hang_up, pod(), CONFLICT, OURS)
    assert found == OK
    assert len(script.requests) == 4


async def test_reading_is_repeated_until_the_server_answers(tmp_path: Path) -> None:
    found, script = await ending(
        tmp_path, hang_up, refuse(500, "x"), hang_up, refuse(503, "x"), OURS
    )
    assert found == OK
    assert asked(script) == ["POST /binding", *["GET pod"] * 4]


async def test_after_a_lost_answer_the_pod_may_be_gone_or_taken(tmp_path: Path) -> None:
    found, _ = await ending(tmp_path, hang_up, refuse(404, "NotFound", "gone"))
    failed(found, reasons.POD_GONE, "gone")
    found, _ = await ending(tmp_path, hang_up, pod("other"))
    failed(found, reasons.BIND_CONFLICT, "another client bound it to other")


@pytest.mark.parametrize(
    ("answers", "look_first", "is_told"),
    [
        ([hang_up, refuse(404, "NotFound", "gone")], False, True),
        ([refuse(404, "NotFound", "gone")], True, True),
        ([hang_up, pod(), refuse(404, "NotFound", "gone")], False, True),
        ([refuse(404, "NotFound", "gone")], False, False),
        ([hang_up, pod("other")], False, False),
    ],
)
async def test_it_is_told_if_the_pod_that_is_gone_may_have_been_bound(
    tmp_path: Path, answers: list[Answer], look_first: bool, is_told: bool
) -> None:
    """Its kubelet may come to it all the same, and find the record of the next."""
    told: list[bool] = []
    async with scripted() as script, client_of(script, tmp_path) as client:
        script.then(*answers)
        gone = partial(told.append, True)
        await bind(client, TARGET, 2_000, look_first=look_first, on_gone=gone)
    assert told == [True] * is_told


@pytest.mark.parametrize("code", [400, 401, 403])
async def test_a_refused_look_is_no_ending(tmp_path: Path, code: int) -> None:
    """The lost Binding may have landed: giving the cards back would give them out twice."""
    found, script = await ending(tmp_path, hang_up, refuse(code, "Nope", "may not look"), OURS)
    assert found == OK
    assert asked(script) == ["POST /binding", "GET pod", "GET pod"]


async def test_why_a_pod_cannot_be_read_is_told(tmp_path: Path) -> None:
    problems: list[str] = []
    async with scripted() as script, client_of(script, tmp_path) as client:
        script.then(CONFLICT, refuse(403, "Forbidden", "may not get pods"), reply([]), OURS)
        found = await bind(client, TARGET, 2_000, look_first=False, on_problem=problems.append)
    assert found == OK
    assert problems[0] == "may not get pods"
    assert problems[1].startswith("the answer is not a pod: Expected `object`")


async def test_what_an_earlier_life_left_is_looked_at_before_anything_is_sent(
    tmp_path: Path,
) -> None:
    found, script = await ending(tmp_path, OURS, look_first=True)
    assert found == OK
    assert asked(script) == ["GET pod"]
    found, script = await ending(tmp_path, pod(), CREATED, look_first=True)
    assert found == OK
    assert asked(script) == ["GET pod", "POST /binding"]
    found, _ = await ending(tmp_path, pod("other"), look_first=True)
    failed(found, reasons.BIND_CONFLICT, "another client bound it to other")


async def test_nothing_is_bound_to_a_node_that_is_gone(tmp_path: Path) -> None:
    found, script = await ending(tmp_path, gone=True)
    failed(found, reasons.NODE_NOT_READY, "node node.1 is gone")
    assert asked(script) == []
    found, _ = await ending(tmp_path, OURS, look_first=True, gone=True)
    assert found == OK


ILL = (reasons.GPU_UNHEALTHY, "card GPU-0a of node node.1 is unhealthy now")
NO_LOCK = (reasons.API_ERROR, "lock hamivgpu of node node.1: 403 forbidden")
NO_CLAIM = (reasons.VOLUME_NOT_READY, "PersistentVolumeClaim default/data: not found")


async def in_doubt(
    tmp_path: Path, obstacles: list[Obstacle | None], *answers: Answer, reserved: bool = True
) -> tuple[Bound | BindFailed, Script]:
    """How it ends where an earlier life may have sent the Binding and these obstacles are met."""

    async def prepare() -> Obstacle | None:
        return obstacles.pop(0)

    async with scripted() as script, client_of(script, tmp_path) as client:
        script.then(*answers)
        with patience():
            found = await bind(
                client,
                TARGET,
                2_000,
                look_first=True,
                prepare=prepare,
                is_reserved=lambda: reserved,
            )
        assert not script.answers, "not everything was asked"
        assert not obstacles, "not every obstacle was met"
    return found, script


@pytest.mark.parametrize("obstacle", [ILL, NO_LOCK, NO_CLAIM])
async def test_an_obstacle_is_no_ending_while_an_earlier_binding_may_be_under_way(
    tmp_path: Path, obstacle: Obstacle
) -> None:
    """Given back, the card would be the next pod's, and the Binding would land all the same."""
    found, script = await in_doubt(tmp_path, [obstacle, obstacle], pod(), pod(), OURS)
    assert found == OK
    assert asked(script) == ["GET pod"] * 3


async def test_when_the_obstacle_is_gone_the_binding_is_sent_again(tmp_path: Path) -> None:
    found, script = await in_doubt(tmp_path, [ILL, None], pod(), pod(), CREATED)
    assert found == OK
    assert asked(script) == ["GET pod", "GET pod", "POST /binding"]


async def test_an_obstacle_that_stays_is_bound_into_and_a_missing_lock_never(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Binding that takes effect, or finds the pod gone, is all that can settle the doubt."""
    monkeypatch.setattr(bindings, "OBSTACLE_WAITED_OUT_S", 0.0)
    found, script = await in_doubt(tmp_path, [ILL], pod(), CREATED)
    assert found == OK
    assert asked(script) == ["GET pod", "POST /binding"]
    found, _ = await in_doubt(tmp_path, [NO_LOCK, NO_CLAIM, None], pod(), pod(), pod(), CREATED)
    assert found == OK


async def test_an_obstacle_ends_what_is_not_reserved_any_more(tmp_path: Path) -> None:
    found, _ = await in_doubt(tmp_path, [ILL], pod(), reserved=False)
    failed(found, reasons.GPU_UNHEALTHY, "unhealthy now")


@pytest.mark.parametrize("seq", ["41", None], ids=["another number", "no number"])
async def test_in_doubt_a_pod_on_its_node_is_bound_whatever_its_owner_made_of_our_mark(
    tmp_path: Path, seq: str | None
) -> None:
    found, _ = await ending(tmp_path, pod("node.1", seq), look_first=True)
    assert found == OK
    found, _ = await ending(tmp_path, hang_up, pod("node.1", seq))
    assert found == OK


async def test_throttling_is_waited_for(tmp_path: Path) -> None:
    throttled = refuse(429, "TooManyRequests", "slow down", Retry_After="0")
    found, script = await ending(tmp_path, throttled, CREATED)
    assert found == OK
    assert asked(script) == ["POST /binding"] * 2


async def test_a_reply_that_is_no_pod_is_asked_for_again(tmp_path: Path) -> None:
    """A proxy's page with status 200 tells nothing about the pod, and must not end the binder."""
    page = reply("<html>maintenance</html>")
    found, script = await ending(tmp_path, hang_up, page, OURS)
    assert found == OK
    assert asked(script) == ["POST /binding", "GET pod", "GET pod"]
