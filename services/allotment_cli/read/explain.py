"""`allot explain`, and `allot explain pod`: why a pod is where it is, or why it waits."""

from collections.abc import Callable

import anyio
import click
from click.shell_completion import CompletionItem

from allotment.answers import pods
from allotment.answers.source import Origin
from allotment.core.errors import AllotError
from allotment.core.explain.rows.life import PodExplanation
from allotment_cli.options import completion
from allotment_cli.options.lazy import KindGroup
from allotment_cli.options.names import pod_name
from allotment_cli.options.params import at_option, namespace_option, output_option, watch_option
from allotment_cli.options.source import open_source, source_options
from allotment_cli.read.watching import LEAVE_OUT_WATCH, check_watch, watch
from allotment_cli.show.explain_text import OVER, explanation_lines
from allotment_cli.show.output import DOCUMENTS, emit, emit_document, suggest

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
    origin: Origin,
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

    if watch:
        check_watch(at, origin.file, output, LEAVE_OUT_WATCH)
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
    """The explanation of a pod in the log of these options. Raises `AllotError`."""
    async with open_source(origin) as source:
        return await pods.explain(source, namespace, name, at, node=node, previous=previous)


async def _watch(
    origin: Origin,
    namespace: str,
    name: str,
    node: str | None,
    show: Callable[[PodExplanation], None],
) -> None:
    """Explain a pod as it is now, and each time that something else is to be said."""
    async with open_source(origin) as source:
        asked = pods.Asked(source, namespace, name, node)
        folded = await asked.folded(None)
        show(await asked.explained(folded))
        await watch(source, folded, asked.explained, show, observer=asked.observe)


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
