"""The pages, one file each, and the table of them.

A view is pure: `view(moment, match, query)` returns a struct with all that the page shows, or
`NotFound`. `match` is what the pattern's names stand for in the address, `query` the rest of it.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from allotment_inspector.history import Moment
from allotment_inspector.pages import search, usage
from allotment_inspector.pages.parts.found import NotFound
from allotment_inspector.pages.records import compare, decision, log, record, whatif
from allotment_inspector.pages.things import (
    cards,
    gang,
    gang_advice,
    node,
    pod,
    pod_advice,
    pods,
    queue,
    queues,
)

__all__ = ["PAGES", "NotFound", "Page"]

View = Callable[[Moment, Mapping[str, str], Mapping[str, str]], msgspec.Struct]
Command = Callable[[Moment, Mapping[str, str], Mapping[str, str]], str]
Csv = Callable[[Moment, Mapping[str, str], Mapping[str, str]], str]


class Page(NamedTuple):
    """One page. `pattern` is its address, with names in braces for what the view is given.

    `template` is a file in ``templates``. `command` says what to type for the same answer, "" where
    nothing gives it.
    `csv` returns the page's numbers for a spreadsheet, where it has any.
    `nav` is its word in the bar, "" for pages that others lead to.
    """

    name: str
    pattern: str
    view: View
    template: str
    command: Command
    nav: str = ""
    csv: Csv | None = None


PAGES = (
    Page("cards", "/", cards.view, "cards.html", cards.command, "Map"),
    Page("node", "/nodes/{name}", node.view, "node.html", node.command),
    Page("pods", "/pods", pods.view, "pods.html", pods.command, "Pods"),
    Page("pod", "/pods/{namespace}/{name}", pod.view, "pod.html", pod.command),
    Page(
        "advice",
        "/pods/{namespace}/{name}/advice",
        pod_advice.view,
        "pod_advice.html",
        pod_advice.command,
    ),
    Page("queues", "/queues", queues.view, "queues.html", queues.command, "Queues"),
    Page("queue", "/queues/{name}", queue.view, "queue.html", queue.command),
    Page("gang", "/gangs/{namespace}/{name}", gang.view, "gang.html", gang.command),
    Page(
        "gangAdvice",
        "/gangs/{namespace}/{name}/advice",
        gang_advice.view,
        "gang_advice.html",
        gang_advice.command,
    ),
    Page("log", "/log", log.view, "log.html", log.command, "Log"),
    Page("record", "/log/{seq}", record.view, "record.html", record.command),
    Page("decision", "/decisions/{seq}", decision.view, "decision.html", decision.command),
    Page("whatif", "/decisions/{seq}/otherwise", whatif.view, "whatif.html", whatif.command),
    Page("compare", "/compare", compare.view, "compare.html", compare.command, "Changes"),
    Page("usage", "/usage", usage.view, "usage.html", usage.command, "Usage", usage.table),
    Page("search", "/search", search.view, "search.html", search.command),
)
