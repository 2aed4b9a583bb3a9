"""Filter, score and choice as plain loops over shares, after the text of the specification.

Written to be obviously right, not fast: every amount is summed anew whenever it is asked for, the
card order is a selection by comparison, and nothing comes from `allotment.core`. On any state it
must decide exactly as the real cycle does.
"""

from collections import Counter
from typing import NamedTuple

from allotment_proto.events import NodeObserved, PodObserved
from allotment_proto.facts import (
    CardFact,
    DeviceRequest,
    Expression,
    Holding,
    Policy,
    Selection,
    Taint,
    Toleration,
)
from tests.model import Model, Share

FAMILY_ORDER = ("gpushare", "vgpu")
CHECKS = (
    "GPUNotSelected",
    "GPUModelMismatch",
    "GPUUnhealthy",
    "ShareLimitReached",
    "ExclusiveConflict",
    "InsufficientGPUMemory",
    "InsufficientGPUCompute",
)


class Answer(NamedTuple):
    """Where the pod goes, or (with no node) how many nodes say no, and why."""

    node: str
    holdings: tuple[Holding, ...]
    score_micro: int
    reasons: dict[str, int]


class _Use(NamedTuple):
    slots: int
    memory_mib: int
    cores_pct: int


def decide(model: Model, policy: Policy, pod: PodObserved) -> Answer:
    """The best node: highest score, then least memory left on its cards, then by name."""
    best: tuple[int, int, str, tuple[Holding, ...]] | None = None
    refused: Counter[str] = Counter()
    for name in sorted(model.nodes):
        found = _node(model, policy, pod, model.nodes[name])
        if isinstance(found, str):
            refused[found] += 1
            continue
        score, left_mib, holdings = found
        if best is None or score > best[0] or (score == best[0] and left_mib < best[1]):
            best = (score, left_mib, name, holdings)
    if best is None:
        return Answer("", (), 0, dict(refused))
    return Answer(best[2], best[3], best[0], dict(refused))


def run(model: Model, policy: Policy, batch: list[str]) -> dict[str, Answer]:
    """Decide for the pods in order; later ones see what earlier ones took."""
    world = Model()
    world.nodes, world.pods = dict(model.nodes), dict(model.pods)
    world.shares, world.names = list(model.shares), model.names
    world.unread = set(model.unread)
    answers: dict[str, Answer] = {}
    for uid in batch:
        if uid in answers or uid not in world.pending() or world.pods[uid].problem is not None:
            continue
        pod = world.pods[uid]
        answers[uid] = answer = decide(world, policy, pod)
        if answer.node:
            wanted = pod.request
            world.shares.append(
                Share(
                    uid,
                    answer.node,
                    answer.holdings,
                    wanted.cpu_milli,
                    wanted.memory_bytes,
                    wanted.extended,
                    -1,
                    False,
                )
            )
    return answers


def _node(
    model: Model, policy: Policy, pod: PodObserved, fact: NodeObserved
) -> tuple[int, int, tuple[Holding, ...]] | str:
    """(score, memory left on the chosen cards, holdings), or why not."""
    wanted = pod.request
    here = [share for share in model.shares if share.node == fact.name]
    reason = _placement_rules(pod, fact)
    if reason:
        return reason
    if len(here) >= fact.pods:
        return "PodLimitReached"
    cpu = sum(share.cpu_milli for share in here) + wanted.cpu_milli
    memory = sum(share.memory_bytes for share in here) + wanted.memory_bytes
    if wanted.cpu_milli and cpu > fact.cpu_milli:
        return "InsufficientCPU"
    if wanted.memory_bytes and memory > fact.memory_bytes:
        return "InsufficientMemory"
    if wanted.devices and any(model.closes_node(share.uid) for share in here):
        return "CardsQuarantined"
    holdings: list[Holding] = []
    device_micro = left_mib = 0
    for family in FAMILY_ORDER:
        asked = [device for device in wanted.devices if device.family == family]
        if not asked:
            continue
        if family not in policy.families or all(i.family != family for i in fact.inventories):
            return "NoGPU"
        found = _cards(model, policy, fact, family, asked, wanted.selection)
        if isinstance(found, str):
            return found
        holdings.extend(found[0])
        device_micro += found[1]
        left_mib += found[2]
    for name, amount in wanted.extended:
        listed = dict(fact.extended)
        taken = sum(n for share in here for other, n in share.extended if other == name)
        if amount and taken + amount > listed.get(name, 0):
            if not name.endswith("/gpu"):
                return "InsufficientResource"
            return "NotEnoughGPUsOnNode" if name in listed else "NoGPU"
        if amount and not wanted.devices:
            part = 100_000_000 * (taken + amount) // listed[name]
            if policy.device_policy == "binpack":
                device_micro += part
            elif policy.device_policy == "spread":
                device_micro += 100_000_000 - part
    kib = _host_part(memory // 1024, fact.memory_bytes // 1024)
    host_micro = _host_part(cpu, fact.cpu_milli) + kib
    host_micro = (host_micro + (1 << 33)) >> 34  # the mean, to the nearest
    if policy.host_policy == "spread":
        host_micro = 100_000_000 - host_micro
    elif policy.host_policy != "binpack":
        host_micro = 0
    total = policy.device_weight * device_micro + policy.host_weight * host_micro
    total += policy.fit_weight * 100_000_000 * len(holdings)  # a share is all that is given
    return total, left_mib, tuple(holdings)


def _host_part(used: int, capacity: int) -> int:
    """The share in use with 33 binary digits; an overbooked host counts as full."""
    return min(used, capacity) * ((100_000_000 << 33) // capacity) if capacity else 0


def _part(used: int, capacity: int) -> int:
    return min(100_000_000 * used // capacity, 100_000_000) if capacity else 0


def _cards(
    model: Model,
    policy: Policy,
    fact: NodeObserved,
    family: str,
    asked: list[DeviceRequest],
    chosen: Selection,
) -> tuple[list[Holding], int, int] | str:
    """4.2: containers in order, the card order made once for each, no card twice for one."""
    inventory = next(i for i in fact.inventories if i.family == family)
    if chosen.mode is not None and chosen.mode != inventory.mode:
        return "GPUModeMismatch"
    tentative: list[Holding] = []
    score = left_mib = 0

    def use(card: CardFact) -> _Use:
        slots, memory_mib, cores_pct = model.used((fact.name, family, card.id))
        mine = [held for held in tentative if held.card == card.id]
        return _Use(
            slots + len(mine),
            memory_mib + sum(held.memory_mib for held in mine),
            cores_pct + sum(held.cores_pct for held in mine),
        )

    for wanted in asked:
        if wanted.count > len(inventory.cards):
            return "NotEnoughGPUsOnNode"
        missing = wanted.count
        furthest = -1
        for card in _ordered(list(inventory.cards), use, policy.device_policy, family):
            need = wanted.memory_mib
            if wanted.memory_pct:
                need = card.memory_mib * wanted.memory_pct // 100
            now = use(card)
            problem = _card_problem(card, now, need, wanted.cores_pct, chosen, family)
            if problem is not None:
                furthest = max(furthest, CHECKS.index(problem))
                continue
            if policy.device_policy == "spread" and now.slots == 0:
                score += 100_000_000
            tentative.append(Holding(family, wanted.container, card.id, need, wanted.cores_pct))
            if policy.device_policy == "binpack":
                score += _part(use(card).memory_mib, card.memory_mib)
            left_mib += card.memory_mib - use(card).memory_mib
            missing -= 1
            if missing == 0:
                break
        if missing:
            return CHECKS[furthest]
    return tentative, score, left_mib


def _ordered(cards: list[CardFact], use: object, policy: str, family: str) -> list[CardFact]:
    """Repeatedly take out the card that goes before all others."""
    assert callable(use)

    def goes_before(a: CardFact, b: CardFact) -> bool:
        if family == "gpushare":
            return a.index < b.index
        if policy == "binpack" and use(a).memory_mib != use(b).memory_mib:
            return bool(use(a).memory_mib > use(b).memory_mib)
        if policy == "spread" and use(a).slots != use(b).slots:
            return bool(use(a).slots < use(b).slots)
        return a.index < b.index if policy in ("binpack", "spread") else a.index > b.index

    left, out = list(cards), []
    while left:
        first = left[0]
        for other in left[1:]:
            if goes_before(other, first):
                first = other
        left.remove(first)
        out.append(first)
    return out


def _card_problem(
    card: CardFact, now: _Use, need: int, cores: int, chosen: Selection, family: str
) -> str | None:
    if chosen.nouse_ids is not None and card.id in chosen.nouse_ids:
        return "GPUNotSelected"
    if chosen.use_ids is not None and card.id not in chosen.use_ids:
        return "GPUNotSelected"
    if chosen.indexes is not None and card.index not in chosen.indexes:
        return "GPUNotSelected"
    if family == "vgpu" and "NVIDIA" not in card.model:
        return "GPUModelMismatch"
    model = card.model.lower()
    if chosen.use_types is not None:
        if not [word for word in chosen.use_types if word.lower() in model]:
            return "GPUModelMismatch"
    elif [word for word in chosen.nouse_types or () if word.lower() in model]:
        return "GPUModelMismatch"
    if not card.healthy:
        return "GPUUnhealthy"
    if now.slots >= card.slots:
        return "ShareLimitReached"
    if cores == 100 and now.slots > 0:
        return "ExclusiveConflict"
    if card.memory_mib - now.memory_mib < need:
        return "InsufficientGPUMemory"
    if now.cores_pct + cores > card.cores_pct or (cores == 0 and now.cores_pct >= card.cores_pct):
        return "InsufficientGPUCompute"
    return None


def _placement_rules(pod: PodObserved, fact: NodeObserved) -> str:
    rules = pod.request.constraints
    labels = dict(fact.labels)
    if not fact.ready:
        return "NodeNotReady"
    cordon = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
    if fact.unschedulable and not _tolerated(cordon, rules.tolerations):
        return "NodeCordoned"
    for taint in fact.taints:
        if taint.effect != "PreferNoSchedule" and not _tolerated(taint, rules.tolerations):
            return "TaintNotTolerated"
    for key, value in rules.node_selector:
        if labels.get(key) != value:
            return "SelectorMismatch"
    if rules.affinity:
        for term in rules.affinity:
            if not term.labels and not term.fields:
                continue
            fields = {"metadata.name": fact.name}
            if all(_holds(e, labels) for e in term.labels) and all(
                e.key in fields and _holds(e, fields) for e in term.fields
            ):
                break
        else:
            return "AffinityMismatch"
    return "" if _counted_models_do(pod, fact) else "GPUModelMismatch"


def _counted_models_do(pod: PodObserved, fact: NodeObserved) -> bool:
    """Of whole cards, the only ones that are drawn here."""
    chosen = pod.request.selection
    if "nvidia.com/gpu" not in chosen.counted or not dict(fact.extended).get("nvidia.com/gpu"):
        return True
    model = dict(fact.labels).get("nvidia.com/gpu.product", "").lower()
    if chosen.use_types is not None:
        return any(model and word.lower() in model for word in chosen.use_types)
    return bool(model) and not any(word.lower() in model for word in chosen.nouse_types or ())


def _tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    for toleration in tolerations:
        if toleration.effect and toleration.effect != taint.effect:
            continue
        if toleration.operator == "Exists":
            if toleration.key in ("", taint.key):
                return True
        elif (toleration.key, toleration.value) == (taint.key, taint.value):
            return True
    return False


def _holds(expression: Expression, labels: dict[str, str]) -> bool:
    key, operator, values = expression.key, expression.operator, expression.values
    if operator == "In":
        return key in labels and labels[key] in values
    if operator == "NotIn":
        return key not in labels or labels[key] not in values
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    if key not in labels or not labels[key].lstrip("+-").isdigit():
        return False
    if operator == "Gt":
        return int(labels[key]) > int(values[0])
    return operator == "Lt" and int(labels[key]) < int(values[0])
