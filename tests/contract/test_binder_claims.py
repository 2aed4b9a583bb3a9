"""Claims are told the node of the pod that they wait for, before it is bound."""

from pathlib import Path

import pytest
from tests.contract.kube_server import client_of, refuse, reply, scripted

from allotment.core import reasons
from allotment.core.state import RESERVED, Allocation
from allotment_binder.bindings import Target
from allotment_binder.claims import tell_claims

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
