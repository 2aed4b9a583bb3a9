"""Nodes and cards on which pods fail, found from outcomes: held back, then put on trial.

A pod that a decision placed is a *strike* against its node and its cards if kubelet did not admit
it because a device plugin failed, if its device plugin does not acknowledge it at all, or if its
container failed within seconds of its start. A plugin that does not allocate holds its node back at
once, and what waits to be bound there goes elsewhere (`is_left`). Else strikes of several
*strangers* (pods with different owners) since the last pod that did well there hold the place back:
the cards that all strikes name, if the node has others, else the node. After a while the place is
on trial: a node takes one volunteer at a time, a card any pod. A pod that does
well there clears it; one that fails holds it back for twice as long. Without volunteers a node
opens by itself, and the next strike closes it.

What counts is kept narrow, because holding back a healthy node harms others:

* Only kubelet's own words count (the status, which tenants cannot write), and only of pods that a
  decision placed.
* A pod whose annotations are not what was decided, or which is being deleted, is no witness: its
  owner may have made the plugin fail. Nor is anybody while a pod forges device records there.
* Strikes from one namespace hold a place back for the pods of that namespace only.
* How a container ends is up to its owner. So it takes three strangers that died, of three
  namespaces to hold a node back for all; pods with the same image are one stranger unless the image
  runs elsewhere; and if a namespace's pods with one image died on two nodes, they say nothing of
  either (their strikes are *excused*). They excuse no strikes of other namespaces: a tenant whose
  well-known image crashes elsewhere must not free a sick node.

A pod that was turned away shows that the plugin failed; one that starts shows that it works. One
that died is only outweighed by one that lived: that ended well, or has run for a while.

Time is what the log records of it (`TimePassed`): a place that is held back waits for the next such
record, and its end is counted from there (`deadlines` says which have to be recorded).
"""

from collections.abc import Iterator

import msgspec

from allotment.core.ledger.claims import agrees, claimed
from allotment.core.ledger.model import (
    ACTIVE,
    BOUND,
    Allocation,
    CardPlace,
    ClusterState,
    Health,
    Node,
    Pod,
    Strike,
)
from allotment.core.units import cut
from allotment_proto.events import PodObserved
from allotment_proto.volcano import keys

NOT_ADMITTED = "UnexpectedAdmissionError"
"""What kubelet says (`reason`) of a pod whose devices it could not allocate."""
_OF_HOST = ("[memorymanager]", "not enough cpus available")
"""In its message: it could not pin the pod's CPUs or memory. A node is well on which that happens,
and how much a pod asks for is up to its owner: it counts as little as one that died."""
_STRANGERS = 2
"""So many pods of different owners that are turned away one after the other hold a place back."""
_DEAD_STRANGERS = 3
"""And so many a whole node, if some of them died."""
_STRIKES_MAX = 8
HELD_FIRST_MS = 10_000
HELD_MOST_MS = 20 * 60_000
TRIAL_LEAST_MS = 10 * 60_000
"""A node is on trial for as long as it was held back, and at least so long."""
_LIVES_MS = 10_000
"""Where pods died, one that has run for so long has not."""
PLACES_MAX = 128
"""On so many nodes and cards pods that died are remembered."""
_MESSAGE_CHARS_MAX = 200
_WELL = Health()
_RUNNING, _SUCCEEDED = "Running", "Succeeded"


def _node_place(name: str) -> CardPlace:
    """The key of a whole node in `ClusterState.health`."""
    return name, "", ""


def learn(state: ClusterState, pod: Pod, before: PodObserved | None, seq: int) -> None:
    """What a new observation of a pod says of its node and cards; its allocation still stands."""
    fact, held = pod.fact, pod.allocation
    if before is None or held is None or held.node != fact.node or not held.asks_plugins:
        return
    if fact.died is not None and before.died is None:
        if _is_witness(before, fact, held) and not _has_forger(state, held):
            _strike(state, held.node, _died(fact, held, seq))
    elif fact.phase == ACTIVE and _is_served(fact, held) and not _is_served(before, held):
        for place, health in list(state.health.items()):
            if place == _node_place(held.node) and held.seq >= health.strikes[0].decision:
                _keep(state, place, tuple(s for s in health.strikes if not s.is_unserved), seq)
    elif fact.phase in (_RUNNING, _SUCCEEDED):
        has_started, has_lived = before.phase == ACTIVE, fact.phase == _SUCCEEDED != before.phase
        if state.health and (has_started or has_lived):
            _did_well(state, held, seq, has_started=has_started, has_lived=has_lived)
    elif (
        fact.reason == NOT_ADMITTED != before.reason
        and not _is_served(fact, held)
        and _is_witness(before, fact, held)
        and not _has_forger(state, held)
    ):
        _strike(state, held.node, _turned_away(fact, held, seq))


def time_passed(state: ClusterState, seq: int) -> None:
    """Places that were held back long enough are put on trial, and those on which a pod lives for
    long enough are well.
    """
    for place, health in list(state.health.items()):
        uid = _living(state, place, health)
        if uid and uid == health.alive and state.time_ms >= health.alive_ms:
            _keep(state, place, tuple(s for s in health.strikes if not s.has_died), seq)
            continue
        if uid != health.alive:
            alive_ms = state.time_ms + _LIVES_MS if uid else 0
            health = msgspec.structs.replace(health, alive=uid, alive_ms=alive_ms)
            state.health[place] = health
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


def unserved(state: ClusterState) -> Iterator[str]:
    """Of each node the pod that its device plugin has to acknowledge next, of those that we bound
    and that the plugin can find. The service with a clock records it if it is the same one for
    long. While a node is held back that is known, but for a volunteer who may wait behind that pod.
    """
    for node in state.nodes.values():
        health = state.health.get(_node_place(node.name), _WELL)
        is_tried = health.trial_seq and node.has_volunteer(health)
        if not node.backlog or (health.since and not is_tried):
            continue
        waiting = [held for held in node.allocations.values() if _is_unserved(state, node, held)]
        if waiting:
            yield min((held.seq, held.stamp_s, held.uid) for held in waiting)[2]


def _is_unserved(state: ClusterState, node: Node, held: Allocation) -> bool:
    fact = state.pods[held.uid].fact
    return (
        held.phase == BOUND
        and node.awaits(held)
        and fact.node == held.node
        and fact.phase == ACTIVE
        and fact.bind_phase == keys.PHASE_ALLOCATING
        and not any(holding.family in keys.SUCCESS_IS_EARLY for holding in held.holdings)
        and _is_witness(fact, fact, held)
    )


def not_served(state: ClusterState, uid: str, seq: int) -> None:
    """The device plugin of a pod's node has not acknowledged it for long."""
    pod = state.pods.get(uid)
    held = None if pod is None else pod.allocation
    if pod is None or held is None:
        return
    node = state.nodes[held.node]
    if _is_unserved(state, node, held) and not _has_forger(state, held):
        said = "its device plugin has not acknowledged it"
        strike = _struck_by(pod.fact, held, seq, said)
        _strike(state, node.name, msgspec.structs.replace(strike, cards=(), is_unserved=True))
        state.touch(node)


def is_left(state: ClusterState, name: str, decision: int) -> bool:
    """Whether what was decided for a node, and is not sent yet, had better go elsewhere: its device
    plugin does not allocate."""
    health = state.health.get(_node_place(name))
    return (
        health is not None
        and decision <= health.since
        and any(strike.is_unserved for strike in health.strikes)
    )


def deadlines(state: ClusterState) -> Iterator[int]:
    """The moments after `state.time_ms` that the log has to record."""
    for place, health in state.health.items():
        if health.since:
            yield health.until_ms or state.time_ms + 1
        uid = _living(state, place, health)
        if uid:
            yield health.alive_ms if uid == health.alive else state.time_ms + 1


def _living(state: ClusterState, place: CardPlace, health: Health) -> str:
    """The uid of a pod that runs on a place where others died, and was sent there since: the one
    that was noted if it still does, else the first. Empty if none does, or none died.
    """
    if not any(strike.has_died for strike in health.strikes):
        return ""
    name, *card = place
    found = [
        (held.uid != health.alive, held.seq, held.uid)
        for held in state.nodes[name].allocations.values()
        if held.asks_plugins
        and held.seq >= health.strikes[0].decision
        and (fact := state.pods[held.uid].fact).phase == _RUNNING
        and fact.died is None
        and (not place[1] or any([h.family, h.card] == card for h in held.holdings))
    ]
    return min(found)[2] if found else ""


def _held_ms(health: Health) -> int:
    """For how long a place is held back: twice as long each time."""
    return min(HELD_FIRST_MS << min(health.times - 1, 16), HELD_MOST_MS)


def forget(state: ClusterState, name: str) -> None:
    """A node was replaced, is gone, was uncordoned, or unknown: nothing is held against it."""
    for place in [place for place in state.health if place[0] == name]:
        del state.health[place]


def _is_witness(before: PodObserved, fact: PodObserved, held: Allocation) -> bool:
    """Whether it can be the node's doing, as far as annotations tell, that a pod failed."""
    return (
        bool(held.seq)
        and not fact.deleting
        and all(
            seen.broken is None and seen.standing is None and agrees(held.holdings, claimed(seen))
            for seen in (before, fact)
            if seen.node
        )
    )


def _is_served(fact: PodObserved, held: Allocation) -> bool:
    """Whether its device plugin has served a pod: what it fails of afterwards is another matter."""
    return fact.bind_phase == keys.PHASE_SUCCESS and not any(
        holding.family in keys.SUCCESS_IS_EARLY for holding in held.holdings
    )


def forged(state: ClusterState, name: str, seq: int) -> None:
    """A pod wrote a record with which the device plugin of a node would serve others: what they
    make of a plugin says nothing of the node, neither now nor of those that were sent there before.
    """
    if name in state.nodes:
        forget(state, name)
        state.forged_at[name] = state.room_seq = seq


def _has_forger(state: ClusterState, held: Allocation) -> bool:
    """Whether forged records may have made the plugin of a pod's node fail: their writer
    is there, or was when the pod was sent there."""
    if held.seq <= state.forged_at.get(held.node, 0):
        return True
    return any(held.node in (state.pods[uid].forged or ()) for uid in state.forging)


def _did_well(
    state: ClusterState, held: Allocation, seq: int, *, has_started: bool, has_lived: bool
) -> None:
    """Plugins that serve a pod are well, and where one lived so may others; a pod that was decided
    before the trouble says nothing."""
    for place in _places(held.node, _cards(held)):
        health = state.health.get(place)
        if health is not None and held.seq >= health.strikes[0].decision:
            left = (s for s in health.strikes if not (has_lived if s.has_died else has_started))
            _keep(state, place, tuple(left), seq)


def _keep(state: ClusterState, place: CardPlace, strikes: tuple[Strike, ...], seq: int) -> None:
    """Only these strikes are left of a place; where none counts it is not held back."""
    health = state.health[place]
    is_held = any(not strike.is_excused for strike in strikes)
    if health.since and not is_held:
        state.room_seq = seq
    if not strikes:
        del state.health[place]
    elif is_held:
        state.health[place] = msgspec.structs.replace(health, strikes=strikes)
    else:
        state.health[place] = Health(strikes)


def _cards(held: Allocation) -> tuple[tuple[str, str], ...]:
    return tuple(sorted({(h.family, h.card) for h in held.holdings}))


def _places(node: str, cards: tuple[tuple[str, str], ...]) -> list[CardPlace]:
    return [_node_place(node), *((node, *card) for card in cards)]


def _turned_away(fact: PodObserved, held: Allocation, seq: int) -> Strike:
    said = "" if fact.ending is None else fact.ending.message
    strike = _struck_by(fact, held, seq, said)
    if any(words in said for words in _OF_HOST):
        strike = msgspec.structs.replace(strike, has_died=True, image=fact.image)
    return strike


def _died(fact: PodObserved, held: Allocation, seq: int) -> Strike:
    died = fact.died
    assert died is not None
    said = f"container {died.container}: {died.reason}"
    said += f", exit code {died.exit_code}" if died.exit_code else ""
    strike = _struck_by(fact, held, seq, said + (f": {died.message}" if died.message else ""))
    return msgspec.structs.replace(strike, has_died=True, image=fact.image)


def _struck_by(fact: PodObserved, held: Allocation, seq: int, said: str) -> Strike:
    return Strike(
        seq=seq,
        decision=held.seq,
        pod=f"{fact.namespace}/{fact.name}",
        namespace=fact.namespace,
        owner=fact.owner or fact.uid,
        cards=_cards(held),
        message=cut(said, _MESSAGE_CHARS_MAX),
    )


def _strike(state: ClusterState, name: str, strike: Strike) -> None:
    node = state.nodes[name]
    if node.fact is None:
        return
    if strike.has_died and _excuse(state, name, strike):
        strike = msgspec.structs.replace(strike, is_excused=True)
    elif any(
        _is_alike(s, strike) for s in state.health.get(_node_place(name), Health()).strikes
    ) and _runs_elsewhere(state, name, strike.image):
        strike = msgspec.structs.replace(strike, has_run=True)
    for place in _places(name, strike.cards):
        state.health[place] = _struck(state.health.get(place, Health()), strike)
    if not strike.is_excused:
        for place in _blamed(state, node, strike.cards):
            state.health[place] = _held_back(state.health[place], strike.seq)
    _forget_oldest(state)


def _forget_oldest(state: ClusterState) -> None:
    """How pods die is up to tenants, and every pod that is placed asks of all places. One tenant's
    many pods do not push out what more namespaces have shown.
    """
    died = [
        (len(health.namespaces), health.strikes[-1].seq, place)
        for place, health in state.health.items()
        if all(strike.has_died for strike in health.strikes)
    ]
    for *_, place in sorted(died)[:-PLACES_MAX]:
        if state.health.pop(place).since:
            state.room_seq = state.seq


def _excuse(state: ClusterState, name: str, strike: Strike) -> bool:
    """Whether a namespace's image died on another node, too: then it is to blame, and no node."""

    def is_same(other: Strike) -> bool:
        return _is_alike(other, strike) and other.namespace == strike.namespace

    found = [
        place
        for place, health in state.health.items()
        if place[0] != name and any(map(is_same, health.strikes))
    ]
    for place in found:
        strikes = tuple(
            msgspec.structs.replace(s, is_excused=s.is_excused or is_same(s))
            for s in state.health[place].strikes
        )
        _keep(state, place, strikes, strike.seq)
        health = state.health[place]
        most = _STRANGERS if place[1] else _DEAD_STRANGERS
        if health.since and health.times == 1 and not _is_enough(health, most):
            state.health[place] = Health(strikes)
            state.room_seq = strike.seq
    return bool(found)


def _is_alike(one: Strike, other: Strike) -> bool:
    """Whether pods with one image died."""
    return one.has_died and other.has_died and one.image == other.image


def _runs_elsewhere(state: ClusterState, name: str, image: str) -> bool:
    """Whether pods with an image run on other nodes."""
    return any(
        pod.fact.image == image
        and pod.fact.phase == _RUNNING
        and pod.fact.died is None
        and pod.fact.node != name
        for pod in state.pods.values()
    )


def _struck(health: Health, strike: Strike) -> Health:
    """With one more strike; an owner's last one counts."""
    others = tuple(s for s in health.strikes if s.owner != strike.owner)
    return msgspec.structs.replace(health, strikes=(*others[1 - _STRIKES_MAX :], strike))


def _is_enough(health: Health, most: int = _DEAD_STRANGERS) -> bool:
    """Whether so many strangers failed that it is the place's doing. `most` if some of them died:
    a card counts as failing as soon as it does for those that were turned away.
    """
    if any(strike.is_unserved for strike in health.counted):
        return True
    turned_away = sum(not strike.has_died for strike in health.counted)
    died = [strike for strike in health.counted if strike.has_died]
    strangers = {(s.has_run, s.owner if s.has_run else s.image) for s in died}
    return turned_away >= _STRANGERS or turned_away + len(strangers) >= most


def _blamed(state: ClusterState, node: Node, cards: tuple[tuple[str, str], ...]) -> list[CardPlace]:
    """What a strike holds back: the node if it is known to fail, or if no card is common to all of
    its strikes; of its cards those that fail while it has others."""
    whole = state.health[_node_place(node.name)]
    common = set.intersection(*(set(strike.cards) for strike in whole.counted))
    listed = sum(len(ledger.cards) for ledger in node.ledgers.values())
    is_enough = _is_enough(whole) and not 0 < len(common) < listed
    found = [_node_place(node.name)] if whole.times or is_enough else []
    for card in cards if len(cards) < listed else ():
        place = (node.name, *card)
        health = state.health[place]
        if _is_enough(health, _STRANGERS) or (health.times and len(cards) == 1):
            found.append(place)
    return found


def _held_back(health: Health, seq: int) -> Health:
    """Held back from now on; those that were under way when it was do not add to it."""
    if health.since and not health.trial_seq:
        return health
    return msgspec.structs.replace(
        health, times=health.times + 1, since=seq, until_ms=0, trial_seq=0
    )
