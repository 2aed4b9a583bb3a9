"""Claims are told the node of the pod that they wait for, before it is bound."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.contract.kube_server import client_of, refuse, reply, scripted

from allotment.core import reasons
from allotment.core.ledger.model import RESERVED, Allocation
from allotment_binder.bindings import RETRY_FIRST_S, Target
from allotment_binder.volume_claims import bind_claims, tell_claims

Json = dict[str, Any]
pytestmark = pytest.mark.anyio
TARGET = Target("team-a", "p", Allocation("uid", "n1", (), 0, 0, (), phase=RESERVED, seq=7))
CLAIMS = "/api/v1/namespaces/team-a/persistentvolumeclaims"


async def test_every_claim_gets_the_annotation(tmp_path: Path) -> None:
    async with scripted() as script, client_of(script, tmp_path) as client:
        script.otherwise = reply({})
        told = await tell_claims(client, TARGET, ("a", "b"), lambda: True, lambda _: None)
        assert told is None
    assert [r.path for r in script.requests] == [f"{CLAIMS}/a", f"{CLAIMS}/b"]
    wanted = {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}}
    assert script.bodies == [wanted, wanted]


@pytest.mark.parametrize(
    ("status", "code"), [(404, reasons.VOLUME_NOT_READY), (403, reasons.API_ERROR)]
)
async def test_a_claim_that_cannot_be_told_is_an_obstacle(
    status: int, code: str, tmp_path: Path
) -> None:
    async with scripted() as script, client_of(script, tmp_path) as client:
        script.otherwise = refuse(status, "Refused")
        obstacle = await tell_claims(client, TARGET, ("a", "b"), lambda: True, lambda _: None)
    assert obstacle is not None
    assert obstacle[0] == code
    assert "team-a/a" in obstacle[1]
    assert len(script.requests) == 1


async def test_a_conflict_is_tried_again_while_the_placement_stands(tmp_path: Path) -> None:
    said: list[str] = []
    async with scripted() as script, client_of(script, tmp_path) as client:
        script.otherwise = refuse(409, "Conflict")
        told = await tell_claims(client, TARGET, ("a",), lambda: len(said) < 2, said.append)
    assert told is None
    assert len(script.requests) == len(said) == 2


LOCAL = Target(
    "team-a",
    "p",
    Allocation("uid", "n1", (), 0, 0, (), phase=RESERVED, seq=7, volumes=(("data", "disk"),)),
)
DISK = "/api/v1/persistentvolumes/disk"
CLAIM: Json = {"metadata": {"name": "data", "uid": "uid-data"}, "spec": {}}
FREE: Json = {"metadata": {"name": "disk", "resourceVersion": "41"}, "spec": {}}


def given_to(uid: str, name: str = "data") -> Json:
    return {**FREE, "spec": {"claimRef": {"namespace": "team-a", "name": name, "uid": uid}}}


def bound_to(volume: str) -> Json:
    return {**CLAIM, "spec": {"volumeName": volume}, "status": {"phase": "Bound"}}


async def test_a_volume_is_given_its_claim_and_the_binding_waits_for_both(tmp_path: Path) -> None:
    async with scripted() as script, client_of(script, tmp_path) as client:
        script.then(reply(CLAIM), reply(FREE), reply({}), reply(given_to("uid-data")))
        script.then(reply(CLAIM), reply(bound_to("disk")))
        assert await bind_claims(client, LOCAL, lambda: True, lambda _: None) is None
    claim = f"{CLAIMS}/data"
    assert [r.path for r in script.requests] == [claim, DISK, DISK, DISK, claim, claim]
    written = script.bodies[2]
    assert written["metadata"]["resourceVersion"] == "41"
    assert written["metadata"]["annotations"] == {"pv.kubernetes.io/bound-by-controller": "yes"}
    assert written["spec"]["claimRef"]["uid"] == "uid-data"


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ((CLAIM, given_to("uid-other", "other")), "was given to claim team-a/other"),
        ((bound_to("other"), bound_to("other")), "was bound to other meanwhile"),
    ],
)
async def test_a_volume_that_somebody_else_got_is_an_obstacle(
    answers: tuple[Json, ...], words: str, tmp_path: Path
) -> None:
    async with scripted() as script, client_of(script, tmp_path) as client:
        script.then(*(reply(answer) for answer in answers))
        obstacle = await bind_claims(client, LOCAL, lambda: True, lambda _: None)
    assert obstacle is not None
    assert obstacle[0] == reasons.VOLUME_NOT_READY
    assert words in obstacle[1]


async def test_a_volume_that_was_given_before_a_crash_is_not_given_again(tmp_path: Path) -> None:
    async with scripted() as script, client_of(script, tmp_path) as client:
        script.then(reply(CLAIM), reply(given_to("uid-data")), reply(bound_to("disk")))
        assert await bind_claims(client, LOCAL, lambda: True, lambda _: None) is None
    assert script.bodies == [{}, {}, {}]


async def test_a_volume_that_cannot_be_written_now_is_tried_again_after_a_pause(
    tmp_path: Path,
) -> None:
    """Reading it works, so that alone does not pace the tries."""
    said: list[str] = []
    async with scripted() as script, client_of(script, tmp_path) as client:
        script.then(reply(CLAIM))
        for _ in range(9):
            script.then(reply(FREE), refuse(409, "Conflict"))
        started_s = anyio.current_time()
        obstacle = await bind_claims(client, LOCAL, lambda: len(said) < 2, said.append)
        taken_s = anyio.current_time() - started_s
    assert obstacle is None
    assert all(DISK in text for text in said)
    assert len(script.requests) == 5, "the claim, and twice the volume and a write that failed"
    assert taken_s >= RETRY_FIRST_S
