"""Nodes and cards that turn pods away, learned from outcomes: held back, then tried again.

A pod that a decision placed and that kubelet did not admit because a device plugin failed is a
*strike* against its node and its cards. Strikes of several *strangers* (pods with different owners)
since the last pod that started there hold the place back: the cards that all strikes name, if the
node has others, else the node. After a while the place is on trial: a node takes one volunteer at a
time, a card whoever comes. A pod that starts there clears it; one that is turned away holds it back
for twice as long. If nobody volunteers a node opens by itself, and the next strike closes it.

What counts is kept narrow, because whoever can hold back a healthy node harms others:

* Only kubelet's own words count (the status, which tenants cannot write), and only of pods that a
  decision placed. How a container ends is the business of its owner and never counts.
* A pod whose annotations are not what was decided, or which is being deleted, is no witness: its
  owner may have made the plugin fail. Nor is anybody while a pod forges device records there.
* Strikes from one namespace hold a place back for the pods of that namespace only.

Time is what the log tells of it (`TimePassed`): a place that is held back waits for the next such
record, and its end is counted from there (`queues.round.deadlines` says which have to be told).
"""

import msgspec

from allotment.core.ledger.claims import agrees, claimed
from allotment.core.ledger.model import (
    ACTIVE,
    Allocation,
    CardPlace,
    ClusterState,
    Health,
    Node,
    Pod,
    Strike,
)
from allotment_proto.events import PodObserved
from allotment_proto.volcano import keys

NOT_ADMITTED = "UnexpectedAdmissionError"
"""What kubelet says (`reason`) of a pod whose devices it could not allocate."""
_STRANGERS = 2
"""So many pods of different owners that are turned away one after the other hold a place back."""
_STRIKES_MAX = 8
HELD_FIRST_MS = 10_000
HELD_MOST_MS = 20 * 60_000
TRIAL_LEAST_MS = 10 * 60_000
"""A node is on trial for as long as it was held back, and at least so long."""
_MESSAGE_CHARS_MAX = 200
_STARTED = frozenset(("Running", "Succeeded"))


def _node_place(name: str) -> CardPlace:
    """The key of a whole node in `ClusterState.health`."""
    return name, "", ""


def learn(state: ClusterState, pod: Pod, before: PodObserved | None, seq: int) -> None:
    """What a new observation of a pod says of its node and cards; its allocation still stands."""
    fact, held = pod.fact, pod.allocation
    if before is None or held is None or held.node != fact.node:
        return
    if fact.phase in _STARTED:
        if before.phase == ACTIVE and state.health and held.asks_plugins:
            _started(state, held, seq)
    elif (
        fact.reason == NOT_ADMITTED != before.reason
        and _is_witness(before, fact, held)
        and not _has_forger(state, held.node)
    ):
        _turned_away(state, fact, held, seq)


def time_passed(state: ClusterState, seq: int) -> None:
    """Places that were held back long enough are tried again."""
    for place, health in list(state.health.items()):
        if not health.since:
            continue
        if not health.until_ms:
            state.health[place] = msgspec.structs.replace(
                health, until_ms=state.time_ms + _held_ms(health)
            )
        elif state.time_ms >= health.until_ms:
            is_trial = not place[1] and not health.trial_seq
            more_ms = max(_held_ms(health), TRIAL_LEAST_MS)
            state.health[place] = msgspec.structs.replace(
                health,
                since=health.since if is_trial else 0,
                trial_seq=seq if is_trial else 0,
                until_ms=state.time_ms + more_ms if is_trial else 0,
            )
            state.room_seq = seq


def _held_ms(health: Health) -> int:
    """For how long a place is held back: twice as long each time."""
    return min(HELD_FIRST_MS << min(health.times - 1, 16), HELD_MOST_MS)


def forget(state: ClusterState, name: str) -> None:
    """A node is another one, gone, or was uncordoned: nothing is held against it."""
    for place in [place for place in state.health if place[0] == name]:
        del state.health[place]


def _is_witness(before: PodObserved, fact: PodObserved, held: Allocation) -> bool:
    """Whether it is the node's doing, as far as anybody can tell, that a pod was turned away."""
    if not held.seq or fact.deleting or not held.asks_plugins:
        return False
    is_served = fact.bind_phase == keys.PHASE_SUCCESS and not any(
        holding.family in keys.SUCCESS_IS_EARLY for holding in held.holdings
    )
    return not is_served and all(
        seen.broken is None and seen.standing is None and agrees(held.holdings, claimed(seen))
        for seen in (before, fact)
        if seen.node
    )


def _has_forger(state: ClusterState, node: str) -> bool:
    """Whether a pod there wrote records with which the device plugin serves others: what they make
    of a plugin says nothing of the node."""
    return any(pod.forged and node in pod.forged for pod in state.pods.values())


def _started(state: ClusterState, held: Allocation, seq: int) -> None:
    """Plugins that serve a pod are well; one that was decided before the trouble says nothing."""
    places = [_node_place(held.node), *((held.node, h.family, h.card) for h in held.holdings)]
    for place in places:
        health = state.health.get(place)
        if health is not None and held.seq >= health.strikes[0].decision:
            del state.health[place]
            if health.since:
                state.room_seq = seq


def _turned_away(state: ClusterState, fact: PodObserved, held: Allocation, seq: int) -> None:
    node = state.nodes[held.node]
    if node.fact is None:
        return
    cards = tuple(sorted({(h.family, h.card) for h in held.holdings}))
    strike = Strike(
        seq=seq,
        decision=held.seq,
        pod=f"{fact.namespace}/{fact.name}",
        namespace=fact.namespace,
        owner=fact.owner or fact.uid,
        cards=cards,
        message="" if fact.ending is None else fact.ending.message[:_MESSAGE_CHARS_MAX],
    )
    places = [_node_place(node.name), *((node.name, *card) for card in cards)]
    for place in places:
        state.health[place] = _struck(state.health.get(place, Health()), strike)
    for place in _blamed(state, node, cards):
        state.health[place] = _held_back(state.health[place], seq)


def _struck(health: Health, strike: Strike) -> Health:
    """With one more strike; a stranger's last one counts."""
    others = tuple(s for s in health.strikes if s.owner != strike.owner)
    return msgspec.structs.replace(health, strikes=(*others[1 - _STRIKES_MAX :], strike))


def _blamed(state: ClusterState, node: Node, cards: tuple[tuple[str, str], ...]) -> list[CardPlace]:
    """What a strike holds back: the node if it is known to fail, or if no card is common to all of
    its strikes; of its cards those that fail while it has others."""
    whole = state.health[_node_place(node.name)]
    common = set.intersection(*(set(strike.cards) for strike in whole.strikes))
    listed = sum(len(ledger.cards) for ledger in node.ledgers.values())
    is_enough = len(whole.strikes) >= _STRANGERS and not 0 < len(common) < listed
    found = [_node_place(node.name)] if whole.times or is_enough else []
    for card in cards if len(cards) < listed else ():
        place = (node.name, *card)
        health = state.health[place]
        if len(health.strikes) >= _STRANGERS or (health.times and len(cards) == 1):
            found.append(place)
    return found


def _held_back(health: Health, seq: int) -> Health:
    """Held back from now on; of those that were under way when it was, nobody adds to it."""
    if health.since and not health.trial_seq:
        return health
    return msgspec.structs.replace(
        health, times=health.times + 1, since=seq, until_ms=0, trial_seq=0
    )
