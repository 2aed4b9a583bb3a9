"""`allot explain`, and `allot explain pod`: why a pod is where it is, or why it waits."""

from collections.abc import Callable
from pathlib import Path

import anyio
import click
import msgspec
from click.shell_completion import CompletionItem

from allotment.adapters.service.moments import AtSequence
from allotment.answers.folding import Folded, Foreseer, Observer, dated, fold, fold_at
from allotment.answers.source import Origin, Source
from allotment.core.errors import AllotError
from allotment.core.explain.life import PodExplanation
from allotment.core.explain.pod import explain as explain_pod
from allotment.core.explain.pod_story import PodLife, PodStory
from allotment.core.ledger import snapshot
from allotment.core.ledger.model import ClusterState
from allotment.core.logport import Record
from allotment_cli.options import completion
from allotment_cli.options.lazy import KindGroup
from allotment_cli.options.names import near, no_such_node, pod_name
from allotment_cli.options.params import at_option, namespace_option, output_option, watch_option
from allotment_cli.options.source import open_source, source_options
from allotment_cli.read.watching import LEAVE_OUT_WATCH, check_watch, watch
from allotment_cli.show.explain_text import OVER, explanation_lines
from allotment_cli.show.output import DOCUMENTS, emit, emit_document, suggest
from allotment_cli.show.progress import waiting
from allotment_proto import subjects
from allotment_proto.codec import UndecodableError, decode_envelope
from allotment_proto.events import Decided, Envelope

PENDING_EXIT = 3


COMMANDS = {
    "pod": ("allotment_cli.read.explain", "pod", "Why a pod is where it is, or why it waits."),
    "gang": (
        "allotment_cli.read.explain_gang",
        "gang",
        "Why a group runs or waits: its PodGroup's name, or its Job's.",
    ),
    "queue": (
        "allotment_cli.read.explain_queue",
        "queue",
        "What a queue may have, what it has, and which pods wait in it.",
    ),
    "node": (
        "allotment_cli.read.explain_node",
        "node",
        "What is on a node, and which waiting pods it refuses, and why.",
    ),
}


ALIASES = {
    **dict.fromkeys(("pods", "po"), "pod"),
    **dict.fromkeys(("group", "podgroup", "pg", "job", "vcjob"), "gang"),
    **dict.fromkeys(("queues", "q"), "queue"),
    **dict.fromkeys(("nodes", "no"), "node"),
}


class Explain(KindGroup):
    """`explain X` is `explain pod X`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        first, *rest = args
        is_kind = self.get_command(ctx, first.partition("/")[0]) is not None
        if not is_kind and not first.startswith("-") and (not rest or rest[0].startswith("-")):
            args = ["pod", *args]
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Kinds and their names; where no kind begins so, pods."""
        found = super().shell_complete(ctx, incomplete)
        return found or completion.pods(ctx, None, incomplete)


@click.group(cls=Explain, commands=COMMANDS, aliases=ALIASES)
def explain() -> None:
    """Explain why a pod, gang or queue runs or waits, and what a node takes and refuses."""


@click.command()
@click.argument("name", metavar="[NAMESPACE/]NAME", shell_complete=completion.pods)
@namespace_option
@source_options
@at_option
@watch_option
@click.option(
    "--node",
    shell_complete=completion.nodes,
    help="Show also every step for every card of this node.",
)
@click.option("--previous", is_flag=True, help="The pod that had the name before.")
@click.option(
    "--all", "all_", is_flag=True, help="Show every candidate and every step of the timeline."
)
@click.option("--exit-code", is_flag=True, help="Exit 0 if the pod has a place, 3 if it waits.")
@output_option(*DOCUMENTS)
@click.pass_context
def pod(
    ctx: click.Context,
    name: str,
    namespace: str | None,
    home: Path,
    nats: str | None,
    file: Path | None,
    at: str | None,
    watch: bool,
    node: str | None,
    previous: bool,
    all_: bool,
    exit_code: bool,
    output: str,
) -> None:
    """Why this pod is where it is, or why it waits."""
    space, bare = pod_name(name, "pod", namespace)

    def show(found: PodExplanation) -> None:
        if output in DOCUMENTS:
            emit_document(found, output)
            return
        emit(explanation_lines(found, everything=all_))
        suggest(_next(found))

    origin = Origin(home, nats, file)
    if watch:
        check_watch(at, file, output, LEAVE_OUT_WATCH)
        if previous:
            raise AllotError("the previous pod no longer changes", "leave out --watch")
        anyio.run(_watch, origin, space, bare, node, show)
        return
    found = anyio.run(run, origin, space, bare, at, node, previous)
    show(found)
    if exit_code and found.status.phase == "Pending":
        ctx.exit(PENDING_EXIT)


async def run(
    origin: Origin,
    namespace: str,
    name: str,
    at: str | None,
    node: str | None,
    previous: bool = False,
) -> PodExplanation:
    """Fold to the moment; for a placed pod fold again to what its decision read."""
    async with open_source(origin) as source:
        asked = _Asked(source, PodStory(namespace, name), node, previous)
        folded = await followed(source, asked.story, at, asked.bases.foresee)
        return await asked.explained(folded)


async def _watch(
    origin: Origin,
    namespace: str,
    name: str,
    node: str | None,
    show: Callable[[PodExplanation], None],
) -> None:
    """Explain a pod as it is now, and each time that something else is to be said."""
    async with open_source(origin) as source:
        asked = _Asked(source, PodStory(namespace, name), node)
        folded = await followed(source, asked.story, None, asked.bases.foresee)
        show(await asked.explained(folded))
        hears = _following(asked.story)
        await watch(
            source, folded, asked.explained, show, observer=hears, foreseer=asked.bases.foresee
        )


class _Asked:
    """What is asked about a pod whose story is followed."""

    def __init__(
        self, source: Source, story: PodStory, node: str | None, previous: bool = False
    ) -> None:
        self.story = story
        self.bases = _Bases(story)
        self._source = source
        self._node = node
        self._previous = previous

    async def explained(self, folded: Folded, *, advised: bool = True) -> PodExplanation:
        """The explanation at the end of a fold through which the story was followed."""
        source, story, node, state = self._source, self.story, self._node, folded.state
        if node is not None and node not in state.nodes:
            raise no_such_node(node, state.nodes, folded.seq)
        told = told_of(story, folded, self._previous)
        placed = told.placed
        before = None if placed is None else await self.bases.state(source, placed.decided.basis)
        kin = await kin_of(source, story, told, folded)
        with waiting("trying what would make it fit"):
            found = explain_pod(
                state,
                story,
                folded.time_ms,
                before=before,
                node=node,
                kin=kin,
                told=told,
                advised=advised,
            )
        problems = await dated(source, found.problems, folded.seq)
        return msgspec.structs.replace(found, problems=tuple(problems))


async def collect(
    source: Source, namespace: str, name: str, at: str | None, *, asks_nodes: bool
) -> tuple[Folded, PodStory]:
    """The story of the pods of a name, up to a moment; `asks_nodes` as in `PodLife`. Raises
    `AllotError` if there is none.
    """
    story = PodStory(namespace, name, asks_nodes=asks_nodes)
    return await followed(source, story, at), story


async def followed(
    source: Source, story: PodStory, at: str | None, foreseer: Foreseer | None = None
) -> Folded:
    """The fold that a story was followed through. Raises `AllotError` if no pod had its name."""
    folded = await fold_at(source, at, _following(story), foreseer=foreseer)
    if story.latest is None:
        raise AllotError(
            f"pod {story.namespace}/{story.name} is not in the log up to seq {folded.seq}",
            _similar(folded, story.namespace, story.name),
        )
    return folded


def told_of(story: PodStory, folded: Folded, previous: bool) -> PodLife:
    """The latest pod of a story that was followed, or the one before it. Raises `AllotError`."""
    lives = list(story.lives.values())
    if previous and len(lives) < 2:
        raise AllotError(
            f"no other pod had the name {story.namespace}/{story.name} up to seq {folded.seq}",
            "leave out --previous",
        )
    return lives[-2 if previous else -1]


async def kin_of(source: Source, story: PodStory, told: PodLife, folded: Folded) -> PodLife | None:
    """The life of the pod of the same owner whose place a pod took; read again for it alone."""
    kin = story.before.get(told.uid)
    if kin is None:
        return None
    other = PodStory(kin.namespace, kin.name)
    await fold(source, AtSequence(folded.seq), _following(other))
    return other.lives.get(kin.uid)


def _following(story: PodStory) -> Observer:
    def observe(record: Record, envelope: Envelope, state: ClusterState) -> None:
        story.follow(record.seq, record.time_ns // 1_000_000, envelope, state)

    return observe


class _Bases:
    """The state that the decision about a pod's place read, kept on the way where it is the one
    right before the decision: then the log need not be read a second time.
    """

    def __init__(self, story: PodStory) -> None:
        self._story = story
        self._seq = 0
        self._image = b""

    def foresee(self, record: Record, state: ClusterState) -> None:
        """Before a record takes effect."""
        if record.subject != subjects.DECISION:
            return
        latest = self._story.latest
        if latest is None or latest.uid.encode() not in record.payload:
            return
        for event in _decisions(record):
            if not any(placement.uid == latest.uid for placement in event.placements):
                continue
            if event.basis == state.seq:
                self._seq, self._image = state.seq, snapshot.encode(state)

    async def state(self, source: Source, basis: int) -> ClusterState:
        if self._image and self._seq == basis:
            return snapshot.decode(self._image)
        return (await fold(source, AtSequence(basis))).state


def _decisions(record: Record) -> list[Decided]:
    try:
        events = decode_envelope(record.payload, record.subject).events
    except UndecodableError:
        return []
    return [event for event in events if isinstance(event, Decided)]


def _similar(folded: Folded, namespace: str, name: str) -> str:
    known = [f"{p.fact.namespace}/{p.fact.name}" for p in folded.state.pods.values()]
    close = near(namespace, name, known)
    return f"did you mean {close}?" if close else "see: allot get pods -A"


def _next(found: PodExplanation) -> str:
    name = f"{found.subject.namespace}/{found.subject.name}"
    if found.status.phase in OVER:
        return f"allot log --pod {name}"
    if found.placement is not None:
        return f"allot ledger --node {found.placement.node}"
    if found.status.refused is not None and found.queue:
        return f"allot explain queue {found.queue}"
    if found.status.group_name:
        return f"allot explain gang {found.status.group_name}"
    if found.closest and found.node_steps is None:
        return f"allot explain pod {name} --node {found.closest[0].node}"
    return f"allot log --pod {name}"
