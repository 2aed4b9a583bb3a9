"""Hostile messages between the services: each is refused by itself, the next one is handled.

The messages are the files of `tests/corpus/bus/<message>`, error answers those of
`tests/corpus/answers`.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.build import node, pod, policy
from tests.contract.binder_loops import at_work
from tests.contract.kube_server import client_of, scripted
from tests.waiting import until

from allotment.adapters.kube.result import Refused, Unknown
from allotment.adapters.log.bus import Message
from allotment_proto import subjects
from allotment_proto.codec import UndecodableError, decode_message, encode
from allotment_proto.messages import MESSAGE_VERSION, Feasible, Proposal, Settled

CORPUS = Path(__file__).parents[1] / "corpus"
KINDS: dict[str, Any] = {"proposal": Proposal, "feasible": Feasible, "settled": Settled}
MESSAGES = {
    f"{file.parent.name}/{file.stem}": file.read_bytes()
    for file in sorted((CORPUS / "bus").glob("*/*"))
}
ANSWERS = {file.name: file.read_bytes() for file in sorted((CORPUS / "answers").iterdir())}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_that_no_service_takes(name: str) -> None:
    with pytest.raises(UndecodableError):
        decode_message(KINDS[name.partition("/")[0]], MESSAGES[name])


@pytest.mark.anyio
async def test_the_binder_refuses_each_and_decides_the_next(tmp_path: Path) -> None:
    """A cycle's name with a line break, and sequences below 0, ended the binder or the log."""
    hostile = {name: m for name, m in MESSAGES.items() if name.startswith("proposal/")}
    async with at_work(tmp_path, policy(), node(), pod("a")) as scene:
        decider = scene.binder.decider
        for payload in hostile.values():
            await decider.on_proposal(Message(subjects.PROPOSAL, payload, {}, ""))
        refusals = decider.ctx.refusals
        assert refusals.total == {("bus", "Proposal"): len(hostile)}
        await scene.propose("a")
        assert [s.outcome for s in scene.bus.settled] == ["decided"]


@pytest.mark.anyio
async def test_a_basis_that_the_log_does_not_have(tmp_path: Path) -> None:
    async with at_work(tmp_path, policy(), node(), pod("a")) as scene:
        decider = scene.binder.decider
        ahead = Proposal(
            v=MESSAGE_VERSION,
            cycle="ahead",
            basis=1 << 60,
            policy=1,
            batch=("a",),
            placements=(),
            refusals=(),
        )
        for _ in range(3):
            await decider.on_proposal(Message(subjects.PROPOSAL, encode(ahead), {}, ""))
        await until(lambda: decider.ctx.refusals.total == {("bus", "Proposal"): 3})
        await scene.propose("a")
        assert decider.ctx.refusals.total == {("bus", "Proposal"): 3}


@pytest.mark.anyio
async def test_a_proposal_that_deciding_fails_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with at_work(tmp_path, policy(), node(), pod("a")) as scene:
        decider = scene.binder.decider
        with monkeypatch.context() as broken:
            broken.setattr("allotment_binder.decider.Deciding.decide", lambda *_: 1 // 0)
            told: list[str] = []
            broken.setattr(decider, "_on_failed", lambda pod, cause: told.append(pod.uid + cause))
            for number in range(3):
                await scene.propose("a", cycle=f"odd-{number}")
            assert decider.ctx.refusals.total == {("bus", "Pod"): 1}
            (standing,) = decider.ctx.refusals.shown()
            assert standing.endswith(
                "(uid 'a'): ZeroDivisionError: integer division or modulo by zero"
            )
            assert told == ["aZeroDivisionError: integer division or modulo by zero"]
        nothing = Proposal(
            v=MESSAGE_VERSION,
            cycle="of the scorer",
            basis=scene.fold.state.seq,
            policy=1,
            batch=("a",),
            placements=(),
            refusals=(),
            failed="KeyError: 'g1'",
        )
        await scene.send(nothing)
        await scene.propose("a")
        assert [s.outcome for s in scene.bus.settled] == ["failed"] * 4 + ["decided"]
        assert decider.ctx.refusals.total == {("bus", "Pod"): 2}
        assert decider.ctx.refusals.shown() == []


@pytest.mark.anyio
@pytest.mark.parametrize("status", [500, 503, 403, 409, 429, 200])
@pytest.mark.parametrize("name", ANSWERS)
async def test_an_answer_of_any_bytes_is_an_answer(tmp_path: Path, name: str, status: int) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        headers = {"Retry-After": "²"} if status == 503 else {}
        return web.Response(body=ANSWERS[name], status=status, headers=headers)

    async with scripted() as script, client_of(script, tmp_path) as client:
        script.otherwise = answer
        said = await client.get("/api/v1/pods")
    if status >= 400:
        assert isinstance(said, Unknown if status >= 500 else Refused)
        assert said.message
        json.dumps(said.message).encode()
