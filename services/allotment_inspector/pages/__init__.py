"""The pages, one file each, and the table of them.

A view is pure: `view(moment, match, query)` returns a struct with all that the page shows, or
`NotFound`. `match` is what the pattern's names stand for in the address, `query` the rest of it.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from allotment_inspector.history import Moment
from allotment_inspector.pages import cards, node
from allotment_inspector.pages.found import NotFound

__all__ = ["PAGES", "NotFound", "Page"]

View = Callable[[Moment, Mapping[str, str], Mapping[str, str]], msgspec.Struct]


class Page(NamedTuple):
    """One page. `pattern` is its address, with names in braces for what the view is given.

    `template` is a file in ``templates``. `command` says what to type for the same answer, of
    match and query; ``{at}`` in it becomes ``--at SEQ`` where the moment is not the newest.
    `nav` is its word in the bar, "" for pages that others lead to.
    """

    name: str
    pattern: str
    view: View
    template: str
    command: Callable[[Mapping[str, str], Mapping[str, str]], str]
    nav: str = ""


PAGES = (
    Page("cards", "/", cards.view, "cards.html", cards.command, "Map"),
    Page("node", "/nodes/{name}", node.view, "node.html", node.command),
)
