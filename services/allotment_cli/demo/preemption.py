"""The preemption in `allot demo`: pods are evicted for an urgent one, and both sides explain it.

It waits until everything that it shows is true: the victims' stories name the preemptor and who got
their place, the urgent pod's story its victims, and the explanation of a victim's successor, which
waits, what would let it start.
"""

from pathlib import Path

import anyio

from allotment.answers.source import Origin
from allotment.core.errors import AllotError
from allotment.core.explain.rows.life import EVICTED, RUNNING, Life, PodExplanation
from allotment_cli.demo.apply import apply_examples
from allotment_cli.demo.batch import DIRECTORY, NAMESPACE, Act
from allotment_cli.demo.watch import POLL_S
from allotment_cli.read import explain, story
from allotment_cli.show.explain_text import explanation_lines

BACKGROUND, URGENT = "07-background", "08-urgent"
VICTIMS = tuple(f"background-worker-{number}" for number in range(8))
PREEMPTOR = "urgent-worker-0"
SETTLED_WITHIN_S = 30.0


async def run(origin: Origin, kubeconfig: Path, examples: Path) -> Act:
    """Run the two examples one after the other; returns the stories of a victim and of the urgent
    pod, and the explanation of the victim's successor.

    Raises `AllotError` naming what is not as expected after `SETTLED_WITHIN_S`.
    """
    place = examples / DIRECTORY
    await apply_examples(kubeconfig, [place / f"{BACKGROUND}.yaml"])
    for name in VICTIMS:
        await _until_running(origin, name)
    await apply_examples(kubeconfig, [place / f"{URGENT}.yaml"])
    urgent = await _until_running(origin, PREEMPTOR)
    if not urgent.displaced:
        raise AllotError(f"{PREEMPTOR} runs, but its story names no victims")
    name = urgent.displaced[0].name
    victim, successor = await _explained(origin, name)
    displaced = len(urgent.displaced)
    return Act(
        [f"{PREEMPTOR} preempted {displaced} pods of lower priority."],
        [
            (f"allot story {NAMESPACE}/{name} --previous", list(story.story_lines(victim))),
            (f"allot story {NAMESPACE}/{PREEMPTOR}", list(story.story_lines(urgent))),
            (f"allot explain pod {NAMESPACE}/{name}", explanation_lines(successor)),
        ],
    )


async def _until_running(origin: Origin, name: str) -> Life:
    """The story of a pod once it runs."""
    missing = "it is not in the log"
    with anyio.move_on_after(SETTLED_WITHIN_S):
        while True:
            try:
                found = await story.run(origin, NAMESPACE, name, None, False)
                if any(phase.name == RUNNING for phase in found.phases):
                    return found
                missing = f"it is {found.status} {found.cause}".rstrip()
            except AllotError as error:
                missing = error.message
            await anyio.sleep(POLL_S)
    raise AllotError(f"{name} does not run after {SETTLED_WITHIN_S:g} s: {missing}")


async def _explained(origin: Origin, name: str) -> tuple[Life, PodExplanation]:
    """The victim's whole story, and the explanation of its successor."""
    missing = ""
    with anyio.move_on_after(SETTLED_WITHIN_S):
        while True:
            try:
                victim = await story.run(origin, NAMESPACE, name, None, True)
                successor = await explain.run(origin, NAMESPACE, name, None, None)
                missing = _missing_of(victim, successor)
                if not missing:
                    return victim, successor
            except AllotError as error:
                missing = error.message
            await anyio.sleep(POLL_S)
    raise AllotError(f"{name} is not explained as expected after {SETTLED_WITHIN_S:g} s: {missing}")


def _missing_of(victim: Life, successor: PodExplanation) -> str:
    end = victim.end
    if end is None or end.kind != EVICTED or end.evicted is None or end.gone_seq is None:
        return "its story does not end with its eviction"
    if not any(gain.decision for gain in end.evicted.gained):
        return "its story does not say who got its place"
    if successor.status.phase != "Pending" or not successor.status.cause:
        return f"its successor is {successor.status.phase}"
    return "" if successor.counterfactuals else "its successor gets no advice"
