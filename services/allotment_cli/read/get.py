"""`allot get nodes|pods|cards`: what the log knows of each, and what changes."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import click
import msgspec

from allotment.adapters.service.moments import moment_text
from allotment.answers.folding import Folded, Unreadable
from allotment.answers.names import near, no_such_node
from allotment.answers.source import Origin
from allotment.core.explain.causes.why import Whys
from allotment.core.explain.rows.amounts import compute_text, whole_of_card
from allotment.core.explain.rows.pod_views import ELSEWHERE, GATED, PodView, pod_views, stage_of
from allotment.core.explain.rows.views import (
    GONE,
    CardView,
    NodeView,
    cards_of,
    model_text,
    node_views,
    usable_compute,
)
from allotment.core.ledger.model import ClusterState
from allotment.core.units import bytes_text, cpu_text
from allotment_cli.options import completion
from allotment_cli.options.lazy import KindGroup
from allotment_cli.options.names import KINDS, pod_name, usual_namespace
from allotment_cli.options.params import (
    at_option,
    label_test,
    namespaces_options,
    output_option,
    watch_option,
)
from allotment_cli.options.source import source_options
from allotment_cli.read.listing import ByColumn, Column, Kind, Wanted, amount, count, nearest, show
from allotment_cli.show.output import DOCUMENTS, Prose, emit, heading, note, suggest

UNREADABLE_SHOWN = 3
COMMANDS = {
    "nodes": (
        "allotment_cli.read.get",
        "nodes",
        "Status, cards, what is free, and what is wrong.",
    ),
    "pods": (
        "allotment_cli.read.get",
        "pods",
        "Where they are, what they hold, and why others wait.",
    ),
    "cards": (
        "allotment_cli.read.get",
        "cards",
        "Capacity, what is free, and how many hold a part.",
    ),
    "queues": ("allotment_cli.read.get_batch", "queues", "Weight, state, and groups by phase."),
    "gangs": (
        "allotment_cli.read.get_batch",
        "gangs",
        "PodGroups: phase, minimum, pods, and why others wait.",
    ),
    "jobs": ("allotment_cli.read.get_batch", "jobs", "Volcano's Jobs: phase, and pods by phase."),
}
ALIASES = {
    **dict.fromkeys(("node", "no"), "nodes"),
    **dict.fromkeys(("pod", "po"), "pods"),
    **dict.fromkeys(("card", "gpu", "gpus"), "cards"),
    **dict.fromkeys(("queue", "q"), "queues"),
    **dict.fromkeys(("gang", "group", "podgroup", "podgroups", "pg"), "gangs"),
    **dict.fromkeys(("job", "vcjob", "vj"), "jobs"),
}


class Scope(NamedTuple):
    """Which objects of namespaces are meant: those of `namespace`, None for all; or only `names`,
    each as ``namespace/name``, or with all namespaces as it was given. `several`: they may be in
    other namespaces than `namespace`.
    """

    namespace: str | None
    names: tuple[str, ...]
    several: bool

    def keeps(self, view: Any) -> bool:
        """Whether the namespace lets it in; names are tested where names are."""
        return self.namespace is None or bool(self.names) or view.namespace == self.namespace

    def name(self, view: Any) -> str:
        """As `-o name` prints it: `explain` takes it with the same `-n`."""
        return f"{view.namespace}/{view.name}" if self.several else str(view.name)

    def columns(self) -> tuple[Column, ...]:
        """The first columns: the namespace only where it is not the same for all."""
        return ANYWHERE if self.several else ANYWHERE[1:]

    def kind(
        self,
        plural: str,
        columns: Sequence[Column],
        views: Callable[[ClusterState], Sequence[Any]],
        gone: Callable[[Any], Any],
    ) -> Kind:
        """How these objects are listed; `columns` follow those of the name."""
        return Kind(
            plural,
            (*self.columns(), *columns),
            views,
            self.name,
            _spellings,
            gone,
            lambda state, view: self.keeps(view),
            similar=_similar,
            where="" if self.namespace is None else f" in {self.namespace} namespace",
        )


def scope_of(names: Sequence[str], kind: str, namespace: str | None, all_namespaces: bool) -> Scope:
    """What `-n`, `-A` and the names mean; `kind` is one of `names.KINDS`. Raises `AllotError`."""
    if all_namespaces:
        return Scope(None, tuple(map(without_kind, names)), True)
    pairs = [pod_name(name, kind, namespace) for name in names]
    space = namespace or usual_namespace()
    return Scope(space, tuple(map("/".join, pairs)), any(given != space for given, _ in pairs))


def without_kind(name: str) -> str:
    """A name before which a word for its kind may stand, as in ``node/gpu-01``."""
    word, slash, rest = name.partition("/")
    return rest if slash and (word in KINDS or word in ALIASES) else name


def _spellings(view: Any) -> tuple[str, ...]:
    """How a user may name an object of a namespace."""
    return view.name, f"{view.namespace}/{view.name}"


def _similar(name: str, known: Sequence[str]) -> str:
    """The nearest of these names, as ``namespace/name``."""
    namespace, slash, bare = name.partition("/")
    if not slash:
        return nearest(name, known)
    return near(namespace, bare, [each for each in known if "/" in each])


def created(view: Any) -> str:
    """The cell of a column `CREATED`."""
    return moment_text(view.created_ms) if view.created_ms else ""


@click.group(cls=KindGroup, commands=COMMANDS, aliases=ALIASES)
def get() -> None:
    """List nodes, pods, cards, queues, gangs or Jobs as recorded in the log. `get pod`, `get po`
    and `get po/NAME` work as with kubectl. Exit code 1: some of the names are unknown.
    """


def list_options(names: completion.Completer, columns: Sequence[Column]) -> Callable[[Any], Any]:
    """What all lists take; `names` completes their names."""

    def decorate(command: Any) -> Any:
        for option in (
            output_option("wide", *DOCUMENTS, "jsonl", "name"),
            click.option(
                "--sort-by",
                type=ByColumn(columns),
                metavar="COLUMN",
                help="Sort by a column, also one of -o wide, like name or cpu-free.",
            ),
            watch_option,
            at_option,
            source_options,
            click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=names),
        ):
            command = option(command)
        return command

    return decorate


ANYWHERE = (
    Column("NAMESPACE", lambda view: view.namespace),
    Column("NAME", lambda view: view.name),
)
"""The first columns of objects of several namespaces."""
NODES = (
    Column("NAME", lambda v: v.name),
    Column("STATUS", lambda v: v.status),
    amount("CARDS", lambda v: str(v.cards) if v.cards else "", lambda v: v.cards),
    amount(
        "IDLE", lambda v: str(v.cards_idle) if v.cards else "", lambda v: v.cards_idle, optional=1
    ),
    Column("MODEL", lambda v: ",".join(map(model_text, v.models))),
    amount(
        "MEMORY",
        lambda v: bytes_text(v.memory_bytes) if v.memory_bytes else "",
        lambda v: v.memory_bytes,
        optional=3,
    ),
    amount(
        "FREE",
        lambda v: bytes_text(v.free_memory_bytes) if v.memory_bytes else "",
        lambda v: v.free_memory_bytes,
    ),
    Column("COUNTED", lambda v: _counted_text(v.extended, v.free_extended)),
    count("PODS", lambda v: v.pods),
    amount(
        "CPU FREE",
        lambda v: f"{cpu_text(v.free_cpu_milli)}/{cpu_text(v.cpu_milli)}",
        lambda v: v.free_cpu_milli,
        wide=True,
    ),
    amount(
        "HOST MEMORY FREE",
        lambda v: f"{bytes_text(v.free_host_memory_bytes)}/{bytes_text(v.host_memory_bytes)}",
        lambda v: v.free_host_memory_bytes,
        wide=True,
    ),
    amount(
        "PROBLEMS",
        lambda v: str(len(v.problems)) if v.problems else "",
        lambda v: len(v.problems),
        optional=2,
    ),
)


@click.command()
@list_options(completion.nodes, NODES)
@click.option("-l", "--selector", metavar="SELECTOR", help="Only nodes with these labels.")
def nodes(
    origin: Origin,
    selector: str | None,
    names: tuple[str, ...],
    **asked: Any,
) -> None:
    """Nodes: status, cards, what is free, and what is wrong with them."""
    passes = label_test(selector)
    kind = Kind(
        "nodes",
        NODES,
        node_views,
        lambda view: str(view.name),
        lambda view: (view.name,),
        lambda view: msgspec.structs.replace(view, status=GONE),
        lambda state, view: passes(state.nodes[view.name].labels),
        lambda folded, views: emit(_problem_lines(views, folded.unreadable)),
    )
    bare = tuple(map(without_kind, names))
    show(kind, Wanted(origin, names=bare, **asked))


def _memory_of(v: PodView) -> str:
    return bytes_text(v.memory_bytes) if _by_percent(v) or v.memory_bytes else ""


def _compute_of(v: PodView) -> str:
    if not _by_percent(v) and not v.compute_percent:
        return ""
    return compute_text(v.compute_percent, v.compute_whole)


def _by_percent(v: PodView) -> bool:
    return bool(v.cards) and v.compute_whole == 100


def _held_of(v: PodView) -> str:
    counted = [f"{name}: {count}" for name, count in v.extended.items()] if v.node else []
    return ",".join(v.cards) or ", ".join(counted)


PODS = (
    Column("STATUS", lambda v: v.status),
    Column("CAUSE", lambda v: v.cause),
    Column("NODE", lambda v: v.node),
    Column("CARDS", _held_of),
    amount("MEMORY", _memory_of, lambda v: v.memory_bytes, optional=1),
    amount("COMPUTE", _compute_of, lambda v: v.compute_percent, optional=2),
    Column("ASKS", lambda v: v.asks, wide=True),
    Column("SCHEDULER", lambda v: v.scheduler, wide=True),
    Column("CREATED", created, lambda v: v.created_ms, wide=True),
    amount("SEQ", lambda v: str(v.seq) if v.seq else "", lambda v: v.seq, wide=True),
    Column("UID", lambda v: v.uid, wide=True),
)
"""After the columns of a `Scope`."""


@click.command()
@list_options(completion.pods, (*ANYWHERE, *PODS))
@namespaces_options
@click.option("-l", "--selector", metavar="SELECTOR", help="Only pods with these labels.")
@click.option("--node", shell_complete=completion.nodes, help="Only pods on this node.")
@click.option(
    "--pending",
    is_flag=True,
    help="Only pods that wait for this scheduler to place them.",
)
def pods(
    origin: Origin,
    namespace: str | None,
    all_namespaces: bool,
    selector: str | None,
    node: str | None,
    pending: bool,
    names: tuple[str, ...],
    **asked: Any,
) -> None:
    """Pods of one namespace, or with -A of all: where they are, what they hold, and why the others
    wait. The log holds no labels of pods that wait for another scheduler.
    """
    scope = scope_of(names, "pod", namespace, all_namespaces)
    passes = label_test(selector)

    def keeps(state: ClusterState, view: PodView) -> bool:
        return (
            scope.keeps(view)
            and (node is None or view.node == node)
            and (not pending or view.uid in state.pending)
            and (selector is None or passes(dict(state.pods[view.uid].fact.labels)))
        )

    def after(folded: Folded, views: Sequence[PodView]) -> None:
        if pending:
            _note_left_out(folded.state, scope.namespace)
        _suggest_a_pod(folded, views)
        if not views and not scope.names and scope.namespace and folded.state.pods:
            suggest("allot get pods -A")

    kind = scope.kind(
        "pods",
        PODS,
        lambda state: pod_views(state, Whys(state).of),
        lambda view: msgspec.structs.replace(view, status=GONE, cause=""),
    )
    show(kind._replace(keeps=keeps, after=after), Wanted(origin, names=scope.names, **asked))


CARDS = (
    Column("NODE", lambda v: v.node),
    Column("CARD", lambda v: v.device),
    Column("MODEL", lambda v: model_text(v.model)),
    Column("STATE", lambda v: _state_of(v)),
    amount(
        "SHARES",
        lambda v: f"{v.slots - v.free_slots}/{v.slots}",
        lambda v: v.slots - v.free_slots,
    ),
    amount(
        "MEMORY",
        lambda v: bytes_text(v.memory_bytes) if v.memory_bytes else "",
        lambda v: v.memory_bytes,
        optional=1,
    ),
    amount(
        "FREE",
        lambda v: bytes_text(v.free_memory_bytes) if v.memory_bytes else "",
        lambda v: v.free_memory_bytes,
    ),
    amount(
        "COMPUTE FREE",
        lambda v: compute_text(usable_compute(v), whole_of_card(v.compute_percent)),
        lambda v: usable_compute(v),
    ),
    Column("MODE", lambda v: v.mode, wide=True),
    Column("ID", lambda v: v.id, wide=True),
    Column("HOLDERS", lambda v: " ".join(f"{h.namespace}/{h.name}" for h in v.holders), wide=True),
)


def _state_of(v: CardView) -> str:
    flags = ["Unhealthy"] * (not v.healthy) + ["Oversold"] * v.oversold
    return ",".join(flags) or "Healthy"


@click.command()
@list_options(completion.cards, CARDS)
@click.option("-l", "--selector", metavar="SELECTOR", help="Only cards of nodes with these labels.")
@click.option("--node", shell_complete=completion.nodes, help="Only cards of this node.")
def cards(
    origin: Origin,
    selector: str | None,
    node: str | None,
    names: tuple[str, ...],
    **asked: Any,
) -> None:
    """Cards: capacity, what is free, and how many hold a part. NAME is NODE or NODE/CARD."""
    passes = label_test(selector)

    def views(state: ClusterState) -> list[CardView]:
        if node is not None and node not in state.nodes:
            raise no_such_node(node, state.nodes, state.seq)
        there = [node] if node is not None else sorted(state.nodes)
        return [view for name in there for view in cards_of(state, state.nodes[name])]

    kind = Kind(
        "cards",
        CARDS,
        views,
        lambda view: f"{view.node}/{view.device}",
        lambda view: (view.node, f"{view.node}/{view.device}", view.id),
        lambda view: msgspec.structs.replace(view, healthy=False),
        lambda state, view: passes(state.nodes[view.node].labels),
    )
    bare = tuple(map(without_kind, names))
    show(kind, Wanted(origin, names=bare, **asked))


def _note_left_out(state: ClusterState, namespace: str | None) -> None:
    """Say how many pods are pending without waiting for this scheduler."""
    counts = Counter(
        stage_of(state, pod)
        for pod in state.pods.values()
        if namespace is None or pod.fact.namespace == namespace
    )
    left_out = [f"{counts[each]} {each}" for each in (GATED, ELSEWHERE) if counts[each]]
    if left_out:
        note(f"pending pods that do not wait for this scheduler: {', '.join(left_out)}")


def _suggest_a_pod(folded: Folded, views: Iterable[PodView]) -> None:
    waiting = next((v for v in views if v.status == "Pending"), None)
    if waiting is not None:
        suggest(f"allot explain pod {waiting.namespace}/{waiting.name}")


def _counted_text(extended: Mapping[str, int], free: Mapping[str, int]) -> str:
    return " ".join(
        f"{name} {free[name]}/{total}" for name, total in extended.items() if name.endswith("/gpu")
    )


def _problem_lines(views: Sequence[NodeView], unreadable: Sequence[Unreadable]) -> list[str]:
    lines = [f"{v.name}: {p.code}: {p.place}: {p.message}" for v in views for p in v.problems]
    lines += [
        f"log: record {u.seq} ({u.subject}) cannot be read: {u.reason}"
        for u in unreadable[:UNREADABLE_SHOWN]
    ]
    if len(unreadable) > UNREADABLE_SHOWN:
        lines.append(f"log: {len(unreadable) - UNREADABLE_SHOWN} more records cannot be read")
    return ["", heading("Problems"), *(Prose(f"  {line}", 4) for line in lines)] if lines else []
