"""The annotations with which people steer fake nodes and pods, and what is wrong with a value.

On pods: how long starting, running and stopping takes, and what is wrong with them; and, written
by the fakes, the environment that the device plugins gave to the containers. On nodes: faults, and
how long their device plugins take for an Allocate. A value that cannot be meant comes back as a
`Mistake`, which ends as an Event.
"""

from typing import NamedTuple

from allotment.core.units import duration_ns, natural

FAULT = "allotment.dev/fault"
START_DELAY = "allotment.dev/start-delay"
RUN_DURATION = "allotment.dev/run-duration"
STOP_DELAY = "allotment.dev/stop-delay"
ALLOCATE_TIME = "allotment.dev/allocate-time"
"""On a node: how long its device plugins take to serve one container."""

ENV = "allotment.dev/env"
"""On a running pod: what device plugins put into each container's environment, as JSON."""

ALLOCATE_FAILS = "allocate-fails"
EXITS = "exits"
"""Containers start and end with an error at once."""
CARD_UNHEALTHY = "card-unhealthy"
CARD_GONE = "card-gone"
PLUGIN_DIES = "plugin-dies"
PLUGIN_RESTARTS = "plugin-restarts"
WATCH_LOST = "watch-lost"
NODE_GONE = "node-gone"

DURATION_MAX_S = 30 * 24 * 3600.0


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
    plugin_restarts: bool = False
    """The plugins are away for too short a time for the Node to show it."""
    watch_lost: bool = False
    """The kubelet receives no pods until it lists them all again."""
    node_gone: bool = False
    gone: frozenset[str] = frozenset()
    """Cards that the plugin no longer finds."""
    failing: frozenset[str] = frozenset()
    """Cards that the plugin cannot hand out."""
    exits: frozenset[str] = frozenset()
    """Cards on which containers end at once."""


def duration_s(key: str, text: str) -> float | Mistake:
    """Seconds in a duration like ``500ms``, ``5s``, ``2m``, ``1h30m``."""
    duration = duration_ns(text)
    if duration is None or not 0 <= duration <= DURATION_MAX_S * 1_000_000_000:
        return Mistake(key, text, "a duration like 500ms, 5s, 2m or 1h30m, up to 30 days")
    return duration / 1_000_000_000


def pod_fault(text: str) -> str | Mistake:
    """What is wrong with a pod: the device plugin fails its Allocate, or its containers exit."""
    if text in (ALLOCATE_FAILS, EXITS):
        return text
    return Mistake(FAULT, text, f"{ALLOCATE_FAILS} or {EXITS}")


def node_faults(text: str, card_ids: tuple[str, ...]) -> tuple[NodeFaults, tuple[Mistake, ...]]:
    """The faults in a comma list; cards are named by id or by index."""
    cards: dict[str, set[str]] = {
        name: set() for name in (CARD_UNHEALTHY, CARD_GONE, ALLOCATE_FAILS, EXITS)
    }
    switches = dict.fromkeys((PLUGIN_DIES, PLUGIN_RESTARTS, WATCH_LOST, NODE_GONE), False)
    mistakes: list[Mistake] = []
    for item in (word.strip() for word in text.split(",")):
        name, _, value = item.partition("=")
        if name in cards:
            card = _card(value, card_ids)
            if card is None:
                mistakes.append(Mistake(FAULT, item, _card_wanted(name, card_ids)))
            else:
                cards[name].add(card)
        elif item in switches:
            switches[item] = True
        else:
            of_cards = ", ".join(f"{fault}=<index or id>" for fault in cards)
            *others, last = switches
            wanted = f"{of_cards}, {', '.join(others)} or {last}"
            mistakes.append(Mistake(FAULT, item, wanted))
    faults = NodeFaults(
        unhealthy=frozenset(cards[CARD_UNHEALTHY]),
        plugin_dead=switches[PLUGIN_DIES],
        plugin_restarts=switches[PLUGIN_RESTARTS],
        watch_lost=switches[WATCH_LOST],
        node_gone=switches[NODE_GONE],
        gone=frozenset(cards[CARD_GONE]),
        failing=frozenset(cards[ALLOCATE_FAILS]),
        exits=frozenset(cards[EXITS]),
    )
    return faults, tuple(mistakes)


def _card(value: str, card_ids: tuple[str, ...]) -> str | None:
    if value in card_ids:
        return value
    index = natural(value)
    if index is not None and index < len(card_ids):
        return card_ids[index]
    return None


def _card_wanted(fault: str, card_ids: tuple[str, ...]) -> str:
    if not card_ids:
        return "no card fault: this node has no cards"
    return f"{fault}=<0 to {len(card_ids) - 1}, or a card's id>"
