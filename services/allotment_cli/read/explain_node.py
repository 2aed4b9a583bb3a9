"""`allot explain node`: what is on a node, and what it answers to the pods that wait."""

from collections.abc import Iterator, Sequence

import click

from allotment.adapters.service.moments import moment_text
from allotment.answers import objects
from allotment.answers.folding import Folded
from allotment.answers.source import Source
from allotment.core.explain.node import Answer, NodeExplanation
from allotment.core.explain.rows.amounts import compute_text, whole_of_card
from allotment.core.explain.rows.pod_views import PodView
from allotment.core.explain.rows.views import CardView, CountedView, model_text, usable_compute
from allotment.core.units import bytes_text, cpu_text
from allotment_cli.options import completion
from allotment_cli.read.explaining import Asked, answer, explanation_options
from allotment_cli.show.explain_text import field
from allotment_cli.show.output import (
    Prose,
    heading,
    table,
)

ANSWERS_SHOWN = 12


@click.command()
@click.argument("name", shell_complete=completion.nodes)
@explanation_options("Show the answers to every request that waits.")
def node(name: str, asked: Asked) -> None:
    """What is on a node, and which of the waiting pods it refuses, and why."""

    async def explain(source: Source, folded: Folded, *, advised: bool) -> NodeExplanation:
        return await objects.node(source, folded, name)

    answer(asked, explain, node_lines, _next)


def _next(found: NodeExplanation) -> str:
    refused = next((each for each in found.answers if not each.fits), None)
    return f"allot explain pod {refused.first} --node {found.node.name}" if refused else ""


def node_lines(found: NodeExplanation, *, everything: bool = False) -> list[str]:
    """The whole screen."""
    lines = [field(label, text) for label, text in _head(found)]
    if found.node.problems:
        lines += ["", heading("Problems")]
        problems = found.node.problems
        lines += [Prose(f"  {p.code}: {p.place}: {p.message}", 4) for p in problems]
    if found.cards or found.counted:
        lines += ["", heading("Cards"), *_card_lines(found.cards, found.counted)]
    if found.pods:
        lines += ["", heading("Pods on it"), *_pod_lines(found.pods)]
    if found.answers:
        shown = found.answers if everything else found.answers[:ANSWERS_SHOWN]
        lines += ["", heading("What it answers to pods that wait"), *_answer_lines(shown)]
        if len(shown) < len(found.answers):
            lines.append(f"  {len(found.answers) - len(shown)} more: --all")
    return lines


def _head(found: NodeExplanation) -> Iterator[tuple[str, str]]:
    view = found.node
    modes = sorted({card.mode for card in found.cards if card.mode})
    cards = f"   {view.cards} × {', '.join(map(model_text, view.models))}" if view.cards else ""
    yield "Node", view.name + cards + (f"   {', '.join(modes)}" if modes else "")
    yield "Status", view.status
    yield "As of", f"seq {found.as_of.seq}, {moment_text(found.as_of.time_ms)}"
    yield (
        "Host",
        f"{cpu_text(view.free_cpu_milli)} of {cpu_text(view.cpu_milli)} CPU free, "
        f"{bytes_text(view.free_host_memory_bytes)} of {bytes_text(view.host_memory_bytes)} "
        "memory free",
    )
    if found.taints:
        yield "Taints", ", ".join(found.taints)
    fits = sum(each.pods for each in found.answers if each.fits)
    yield "Waiting", _waiting_text(found.waiting, fits)


def _waiting_text(waiting: int, fits: int) -> str:
    """``3 pods wait; 1 fits here``."""
    if not waiting:
        return "no pods wait"
    pods = "1 pod waits" if waiting == 1 else f"{waiting} pods wait"
    return f"{pods}; {fits or 'none'} fit{'s' * (fits <= 1)} here"


def _card_lines(cards: Sequence[CardView], counted: Sequence[CountedView]) -> list[str]:
    rows = [
        [
            card.device,
            ",".join(["Unhealthy"] * (not card.healthy) + ["Oversold"] * card.oversold)
            or "Healthy",
            str(len({holder.uid for holder in card.holders})),
            bytes_text(card.free_memory_bytes) if card.memory_bytes else "",
            bytes_text(card.memory_bytes) if card.memory_bytes else "",
            compute_text(usable_compute(card), whole_of_card(card.compute_percent)),
        ]
        for card in cards
    ]
    rows += [
        [each.resource, "", str(len(each.holders)), str(each.free), str(each.total), ""]
        for each in counted
    ]
    headers = ("CARD", "STATE", "PODS", "FREE", "OF", "COMPUTE FREE")
    return table(headers, rows, right=headers[2:], indent="  ")


def _pod_lines(pods: Sequence[PodView]) -> list[str]:
    rows = [
        [f"{pod.namespace}/{pod.name}", pod.status, ",".join(pod.cards) or pod.asks] for pod in pods
    ]
    return table(("POD", "STATUS", "HOLDS"), rows, indent="  ")


def _answer_lines(answers: Sequence[Answer]) -> list[str]:
    rows = [[str(each.pods), each.asks, each.verdict, _why(each), each.first] for each in answers]
    return table(
        ("PODS", "ASK FOR", "ANSWER", "BECAUSE", "LIKE"), rows, right=("PODS",), indent="  "
    )


def _why(each: Answer) -> str:
    if each.fits:
        return f"waits: {each.waits_for}" if each.waits_for else ""
    return "" if each.detail == each.verdict else each.detail
