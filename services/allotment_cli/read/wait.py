"""`allot wait`: until pods are placed, bound, running, ended or gone, for scripts and tests."""

from collections.abc import Callable, Sequence
from contextlib import aclosing
from enum import Enum
from typing import NamedTuple

import anyio
import click
import msgspec

from allotment.answers.folding import fold, take
from allotment.answers.source import Origin, Source
from allotment.core.errors import AllotError
from allotment.core.explain.causes.why import Whys
from allotment.core.explain.rows.pod_views import pod_status
from allotment.core.ledger.model import ENDED, RESERVED, ClusterState, Pod
from allotment.core.units import age_text, duration_ms
from allotment_cli.options import completion
from allotment_cli.options.names import pod_name
from allotment_cli.options.params import namespace_option, output_option
from allotment_cli.options.source import open_source, source_options
from allotment_cli.show.output import DOCUMENTS, emit, emit_document, note, suggest

IMPOSSIBLE, TIMED_OUT = 1, 3
GONE = "gone"
SCHEMA = "allotment.dev/wait/v1"


class Answer(Enum):
    """Whether the condition is met."""

    YES = "yes"
    NOT_YET = "notYet"
    NEVER = "never"


def _placed(pod: Pod) -> bool:
    return pod.allocation is not None


def _bound(pod: Pod) -> bool:
    return bool(pod.fact.node) or (pod.allocation is not None and pod.allocation.phase != RESERVED)


def _running(pod: Pod) -> bool:
    return pod.fact.phase == "Running"


CONDITIONS: dict[str, Callable[[Pod], bool]] = {
    "placed": _placed,
    "bound": _bound,
    "running": _running,
    "ended": lambda pod: False,
    GONE: lambda pod: False,
}
"""What holds of a pod that has not ended."""


class Waited(NamedTuple):
    """For each pod by name, whether the condition is met, or why it no longer can be."""

    answers: dict[tuple[str, str], Answer]
    said: dict[tuple[str, str], str]


class WaitedPod(msgspec.Struct, frozen=True):
    """One pod, whether the condition is met, and its status."""

    namespace: str
    name: str
    answer: Answer
    status: str


class WaitDocument(msgspec.Struct, frozen=True):
    """The answers as JSON."""

    schema: str
    condition: str
    pods: tuple[WaitedPod, ...]


@click.command()
@click.argument(
    "pods",
    metavar="pod/[NAMESPACE/]NAME...",
    nargs=-1,
    required=True,
    shell_complete=completion.pods,
)
@click.option(
    "--for",
    "condition",
    type=click.Choice(tuple(CONDITIONS)),
    default="bound",
    show_default=True,
    help="What to wait for.",
)
@click.option(
    "--timeout",
    default="30s",
    show_default=True,
    metavar="DURATION",
    help="How long at most, like 90s or 5m; 0 looks once.",
)
@namespace_option
@source_options
@output_option(*DOCUMENTS)
@click.pass_context
def wait(
    ctx: click.Context,
    pods: tuple[str, ...],
    condition: str,
    timeout: str,
    namespace: str | None,
    origin: Origin,
    output: str,
) -> None:
    """Wait until the log says that all these pods are placed (a decision reserved room), bound,
    running, ended (succeeded, failed or gone) or gone. With any condition but gone,
    the command also waits for pods that are not in the log yet.

    Exit code 0: the condition is met. 1: it can no longer be met, because a pod ended or is gone.
    2: the log could not be read. 3: the timeout expired.
    """
    limit_ms = duration_ms(timeout)
    if limit_ms is None or limit_ms < 0:
        raise AllotError(f"--timeout {timeout!r} is not a duration", "give one like 90s, 5m or 0")
    names = [pod_name(text, "pod", namespace) for text in pods]
    waited = anyio.run(_wait, origin, names, condition, limit_ms)
    if output in DOCUMENTS:
        pods_waited = (WaitedPod(*name, waited.answers[name], waited.said[name]) for name in names)
        emit_document(WaitDocument(SCHEMA, condition, tuple(pods_waited)), output)
    for name in names:
        if waited.answers[name] is Answer.YES and output not in DOCUMENTS:
            emit([f"pod/{name[0]}/{name[1]} {condition}"])
    missing = [name for name in names if waited.answers[name] is not Answer.YES]
    for name in missing:
        note(f"allot: pod {name[0]}/{name[1]} is not {condition}: {waited.said[name]}")
    if not missing:
        return
    suggest(f"allot explain pod {missing[0][0]}/{missing[0][1]}")
    never = any(waited.answers[name] is Answer.NEVER for name in missing)
    if not never and limit_ms and origin.file is None:
        note(f"allot: waited for {age_text(limit_ms // 1000)}")
    ctx.exit(IMPOSSIBLE if never else TIMED_OUT)


async def _wait(
    origin: Origin, names: Sequence[tuple[str, str]], condition: str, limit_ms: int
) -> Waited:
    async with open_source(origin) as source:
        folded = await fold(source, None)
        state = folded.state
        seen = {name for name in names if _find(state, name) is not None}
        if limit_ms and origin.file is None:
            with anyio.move_on_after(limit_ms / 1000):
                await _follow(source, state, names, condition, seen)
        return _look(state, names, condition, seen, Whys(state))


async def _follow(
    source: Source,
    state: ClusterState,
    names: Sequence[tuple[str, str]],
    condition: str,
    seen: set[tuple[str, str]],
) -> None:
    """Until every pod has an answer that stays, or one can never have the right one."""
    if _is_over(_look(state, names, condition, seen)):
        return
    async with aclosing(source.follow(state.seq)) as batches:
        async for batch in batches:
            for record in batch:
                take(state, record)
                seen |= {name for name in names if _find(state, name) is not None}
                if _is_over(_look(state, names, condition, seen)):
                    return


def _is_over(waited: Waited) -> bool:
    answers = waited.answers.values()
    return Answer.NEVER in answers or Answer.NOT_YET not in answers


def _look(
    state: ClusterState,
    names: Sequence[tuple[str, str]],
    condition: str,
    seen: set[tuple[str, str]],
    whys: Whys | None = None,
) -> Waited:
    """How each pod stands; only with `whys` the nodes are asked why it waits."""
    waited = Waited({}, {})
    for name in names:
        pod = _find(state, name)
        answer, said = _answer(state, pod, condition, whys, was_seen=name in seen)
        waited.answers[name], waited.said[name] = answer, said
    return waited


def _answer(
    state: ClusterState, pod: Pod | None, condition: str, whys: Whys | None, *, was_seen: bool
) -> tuple[Answer, str]:
    if pod is None:
        if condition == GONE or (was_seen and condition == "ended"):
            return Answer.YES, GONE
        return (
            (Answer.NEVER, "it is gone") if was_seen else (Answer.NOT_YET, "it is not in the log")
        )
    status, cause = pod_status(state, pod)
    cause = cause if whys is None else whys.of(pod).code
    said = f"{status}{f' ({cause})' * bool(cause)}"
    if pod.fact.phase in ENDED:
        is_so = condition == "ended"
        can_be = is_so or condition == GONE
        return (Answer.YES if is_so else Answer.NOT_YET if can_be else Answer.NEVER), said
    return (Answer.YES if CONDITIONS[condition](pod) else Answer.NOT_YET), said


def _find(state: ClusterState, name: tuple[str, str]) -> Pod | None:
    """The pod of this name; of several the youngest."""
    found = [pod for pod in state.pods.values() if (pod.fact.namespace, pod.fact.name) == name]
    return max(found, key=lambda pod: pod.fact.created_ms, default=None)
