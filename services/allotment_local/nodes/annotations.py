"""The annotations with which people steer fake nodes and pods, and what is wrong with a value.

On pods: how long starting, running and stopping takes, and a failing device plugin; and, written
by the fakes, the environment that the device plugins gave to the containers. On nodes: faults. A
value that cannot be meant comes back as a `Mistake`, which ends as an Event.
"""

import re
from typing import NamedTuple

FAULT = "allotment.dev/fault"
START_DELAY = "allotment.dev/start-delay"
RUN_DURATION = "allotment.dev/run-duration"
STOP_DELAY = "allotment.dev/stop-delay"

ENV = "allotment.dev/env"
"""On a running pod: what device plugins put into each container's environment, as JSON."""

ALLOCATE_FAILS = "allocate-fails"
CARD_UNHEALTHY = "card-unhealthy"
CARD_GONE = "card-gone"
PLUGIN_DIES = "plugin-dies"
NODE_GONE = "node-gone"

DURATION_MAX_S = 30 * 24 * 3600.0
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class Mistake(NamedTuple):
    """An annotation value that says nothing we understand: where, what, and what would be right."""

    key: str
    value: str
    wanted: str

    def __str__(self) -> str:
        return f"annotation {self.key}: {self.value!r} is ignored; wanted: {self.wanted}"


class NodeFaults(NamedTuple):
    """What is broken on a node, as asked for."""

    unhealthy: frozenset[str] = frozenset()
    """Card ids."""
    plugin_dead: bool = False
    node_gone: bool = False
    gone: frozenset[str] = frozenset()
    """Cards that the plugin does not find any more."""
    failing: frozenset[str] = frozenset()
    """Cards that the plugin cannot hand out."""


def duration_s(key: str, text: str) -> float | Mistake:
    """Seconds in a duration like ``500ms``, ``5s``, ``2m``, ``1h30m``."""
    total_s, end = 0.0, 0
    for part in _DURATION_PART.finditer(text):
        if part.start() != end:
            break
        total_s += float(part[1]) * _UNITS_S[part[2]]
        end = part.end()
    if not text or end != len(text) or total_s > DURATION_MAX_S:
        return Mistake(key, text, "a duration like 500ms, 5s, 2m or 1h30m, up to 30 days")
    return total_s


def pod_fault(text: str) -> bool | Mistake:
    """Whether the device plugin fails this pod's Allocate."""
    if text == ALLOCATE_FAILS:
        return True
    return Mistake(FAULT, text, ALLOCATE_FAILS)


def node_faults(text: str, card_ids: tuple[str, ...]) -> tuple[NodeFaults, tuple[Mistake, ...]]:
    """The faults in a comma list; cards are named by id or by index."""
    cards: dict[str, set[str]] = {CARD_UNHEALTHY: set(), CARD_GONE: set(), ALLOCATE_FAILS: set()}
    plugin_dead = node_gone = False
    mistakes: list[Mistake] = []
    for item in (word.strip() for word in text.split(",")):
        name, _, value = item.partition("=")
        if name in cards:
            card = _card(value, card_ids)
            if card is None:
                mistakes.append(Mistake(FAULT, item, _card_wanted(name, card_ids)))
            else:
                cards[name].add(card)
        elif item == PLUGIN_DIES:
            plugin_dead = True
        elif item == NODE_GONE:
            node_gone = True
        else:
            of_cards = ", ".join(f"{fault}=<index or id>" for fault in cards)
            mistakes.append(Mistake(FAULT, item, f"{of_cards}, {PLUGIN_DIES} or {NODE_GONE}"))
    faults = NodeFaults(
        unhealthy=frozenset(cards[CARD_UNHEALTHY]),
        plugin_dead=plugin_dead,
        node_gone=node_gone,
        gone=frozenset(cards[CARD_GONE]),
        failing=frozenset(cards[ALLOCATE_FAILS]),
    )
    return faults, tuple(mistakes)


def _card(value: str, card_ids: tuple[str, ...]) -> str | None:
    if value in card_ids:
        return value
    if value.isascii() and value.isdigit() and int(value) < len(card_ids):
        return card_ids[int(value)]
    return None


def _card_wanted(fault: str, card_ids: tuple[str, ...]) -> str:
    if not card_ids:
        return "no card fault: this node has no cards"
    return f"{fault}=<0 to {len(card_ids) - 1}, or a card's id>"
