"""`allot story`: one pod from its ask to its end, with each phase, its cause and its records."""

from collections.abc import Iterator

import anyio
import click

from allotment.adapters.service.moments import local_text, moment_text
from allotment.answers import pods
from allotment.answers.source import Origin
from allotment.core.explain.rows.life import Life, Phase
from allotment.core.explain.rows.words import wants_text
from allotment.core.units import duration_text
from allotment_cli.options import completion
from allotment_cli.options.names import pod_name
from allotment_cli.options.params import at_option, namespace_option, output_option
from allotment_cli.options.source import open_source, source_options
from allotment_cli.show import explain_sections as sections
from allotment_cli.show.explain_text import ask_fields, field, story_fields
from allotment_cli.show.output import (
    DOCUMENTS,
    emit,
    emit_document,
    heading,
    suggest,
    table,
)


@click.command()
@click.argument("name", metavar="[NAMESPACE/]NAME", shell_complete=completion.pods)
@namespace_option
@source_options
@at_option
@click.option("--previous", is_flag=True, help="The pod that had the name before.")
@click.option("--all", "all_", is_flag=True, help="Show also the scheduler's own steps.")
@output_option(*DOCUMENTS)
def story(
    name: str,
    namespace: str | None,
    origin: Origin,
    at: str | None,
    previous: bool,
    all_: bool,
    output: str,
) -> None:
    """Tell a pod's life: its ask, its waits, its place and its end."""
    space, bare = pod_name(name, "pod", namespace)
    found = anyio.run(run, origin, space, bare, at, previous)
    if output in DOCUMENTS:
        emit_document(found, output)
        return
    emit(story_lines(found, everything=all_))
    waits = found.status == "Pending"
    suggest(f"allot {'explain pod' if waits else 'log --pod'} {space}/{bare}")


async def run(
    origin: Origin,
    namespace: str,
    name: str,
    at: str | None,
    previous: bool,
    *,
    asks_nodes: bool = True,
) -> Life:
    """The story of the latest pod of a name up to a moment, or of the one before it."""
    async with open_source(origin) as source:
        return await pods.life(
            source, namespace, name, at, previous=previous, asks_nodes=asks_nodes
        )


def story_lines(found: Life, *, everything: bool = False) -> Iterator[str]:
    """The screen: who it is and what it asks for, its phases, its end, and what happened when."""
    who = found.subject
    yield field("Pod", f"{who.namespace}/{who.name}   uid {who.uid}")
    yield field("Status", f"{found.status}: {found.cause}" if found.cause else found.status)
    yield field("Wants", wants_text(found.ask.request) or "no device")
    yield from ask_fields(found)
    yield from story_fields(found)
    yield field("As of", f"seq {found.as_of.seq}, {moment_text(found.as_of.time_ms)}")
    yield ""
    yield heading("Phases")
    if found.phases_left_out:
        yield f"  {found.phases_left_out} of them are left out"
    yield from _phases(found)
    yield ""
    yield heading("Timeline")
    yield from sections.timeline(found.timeline, everything)


def _phases(found: Life) -> Iterator[str]:
    rows = [
        [
            local_text(phase.start_ms, millis=True),
            _took(phase, found.as_of.time_ms),
            str(phase.start_seq),
            phase.name,
            phase.service,
            _cause(phase),
        ]
        for phase in found.phases
    ]
    headers = ["FROM", "TOOK", "SEQ", "PHASE", "SERVICE", "CAUSE"]
    yield from table(headers, rows, right=("TOOK", "SEQ"), indent="  ", blank=("CAUSE",))


def _took(phase: Phase, now_ms: int) -> str:
    if phase.end_ms is None:
        return f"{duration_text(max(now_ms - phase.start_ms, 0))}+"
    return duration_text(max(phase.end_ms - phase.start_ms, 0))


def _cause(phase: Phase) -> str:
    """Why it waited, or where it is."""
    if phase.code or phase.text:
        said = f"{phase.code}: {phase.text}" if phase.code else phase.text
        tries = f" ({phase.attempts} attempts)" if phase.attempts > 1 else ""
        return f"{said}{tries}"
    decision = f" by decision {phase.decision}" if phase.decision else ""
    return f"on {phase.node}{decision}" if phase.node else ""
