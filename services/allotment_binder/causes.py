"""The text on a waiting pod: its main cause in a sentence, then what was counted.

The sentence is the one of `allot explain` (`explain/why`), asked on the newest state in a
thread. All queued refusals are explained together, and that takes a tenth of the time at most, so a
busy cluster explains later and never decides later.
"""

from collections.abc import Callable, Sequence
from functools import partial

import anyio

from allotment.adapters.log.fold import Fold
from allotment.adapters.service.service import ServiceContext
from allotment.core.explain.causes.why import Why, Whys
from allotment.core.ledger.model import ClusterState, Pod
from allotment.core.placement.unserved import unserved
from allotment.core.queues.eligible import NEVER, can_evict, is_never
from allotment.core.queues.round.rounds import Rounds
from allotment.core.queues.round.verdict import Verdicts
from allotment.core.reasons import OF_CLUSTER, cut
from allotment_binder.notices import Notice, Notices, Refused
from allotment_binder.readers import Readers
from allotment_binder.settings import BinderSettings

ASKED_MOST = 2_000
"""So many nodes are asked at once for all pods; the others get what was counted."""
PAUSE_TIMES = 9
"""After asking there is a pause of so many times as long."""


class Causes:
    """Stands before `Notices`: refusals pass through it and get their sentence."""

    def __init__(
        self,
        ctx: ServiceContext[BinderSettings],
        fold: Fold,
        notices: Notices,
        readers: Readers,
        rounds: Callable[[], Rounds],
    ) -> None:
        """`rounds` returns some that are kept on the fold's state."""
        self._log = ctx.log
        self._fold = fold
        self._notices = notices
        self._readers = readers
        self._rounds = rounds
        self._refused: dict[str, Refused] = {}
        self._stirred = anyio.Event()

    def put(self, notice: Notice) -> None:
        """Queue a notice; a refusal of a pod that waits for no node in particular is explained."""
        self._refused.pop(notice.uid, None)
        if isinstance(notice, Refused) and notice.nominated is None:
            self._refused[notice.uid] = notice
            self._stirred.set()
        else:
            self._notices.put(notice)

    def withdraw(self, uid: str) -> None:
        """Forget a refusal that is no longer true."""
        self._refused.pop(uid, None)
        self._notices.withdraw(uid)

    async def run(self) -> None:
        """Explain what is queued, for as long as the binder runs."""
        while True:
            await self._stirred.wait()
            self._stirred = anyio.Event()
            asked = tuple(self._refused.values())
            begun_s = anyio.current_time()
            texts = await self._fold.off_loop(partial(self._texts, asked))
            for notice, text in zip(asked, texts, strict=True):
                if self._refused.get(notice.uid) is notice:
                    del self._refused[notice.uid]
                    self._notices.put(notice._replace(message=text))
            await anyio.sleep(PAUSE_TIMES * (anyio.current_time() - begun_s))

    def _texts(self, asked: Sequence[Refused]) -> list[str]:
        state = self._fold.state
        whys = Whys(state, ASKED_MOST, Verdicts(state, self._rounds()))
        return [self._text(whys, notice) for notice in asked]

    def _text(self, whys: Whys, notice: Refused) -> str:
        try:
            return told(self._fold.state, whys, notice, self._readers)
        except Exception as error:  # a defect of an explanation must not keep the refusal back
            self._log.error(
                "the cause of a refusal cannot be explained",
                namespace=notice.namespace,
                pod=notice.name,
                error=error,
            )
            return notice.message


def told(state: ClusterState, whys: Whys, notice: Refused, readers: Readers) -> str:
    """The whole text: the cause, what was counted, and the command that tells more. It is cut as
    its readers see it, so that the command is not lost."""
    pod = state.pods.get(notice.uid)
    sentences = [notice.message]
    if pod is not None and notice.uid in state.pending:
        why = whys.of(pod)
        if why.text and why.text not in notice.message:
            sentences = [f"{why.code}: {why.text}", *_beside(pod, why, notice.message)]
        absent = unserved(state, pod.fact.request) if pod.fact.problem is None else ()
        sentences += [text for text in absent if text != why.text]
        sentences += [NEVER] if is_never(state, pod.fact) else _unhelped(state, whys, pod)
    more = f" Ask: allot explain pod {notice.namespace}/{notice.name}"
    return cut(readers.text(notice.namespace, " ".join(map(_ended, sentences))), len(more)) + more


def _beside(pod: Pod, why: Why, message: str) -> tuple[str, ...]:
    """What the scheduler said, where it says more than the cause."""
    problem = None if pod.refusal is None else pod.refusal.problem
    if problem is not None and problem.code in OF_CLUSTER:
        return ()  # the cause has the amounts
    if problem is not None and problem.code == why.code and pod.refusal is not None:
        return (problem.message,) if pod.refusal.quota else ()
    said = message.removeprefix(f"{why.code}: ")
    if said in why.text:
        return ()
    again = f"{why.text[:1].upper()}{why.text[1:]}."
    return (said.replace(again, "").strip(),)


def _unhelped(state: ClusterState, whys: Whys, pod: Pod) -> list[str]:
    """On how many nodes no eviction would make room, where the policy evicts."""
    refusal = pod.refusal
    if refusal is None or refusal.problem is not None or not can_evict(state):
        return []
    number = whys.unhelped(pod.fact)
    where = "any node" if number == refusal.nodes else f"{number} of {refusal.nodes} nodes"
    return [f"Evictions would not help on {where}"] if number else []


def _ended(text: str) -> str:
    return text if text.endswith((".", "?")) else f"{text}."
