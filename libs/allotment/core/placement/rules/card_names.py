"""Cards by the names under which quotas count them, and the annotations that use these names.

Names come from a node's labels ``<prefix>.product``, ``.memory``, ``.replicas`` (prefix such as
``nvidia.com/gpu``) and from what it can allocate:

* whole card: the product,
* MPS share: ``<product>/mps-<GiB>g*1/<replicas>``, if it offers ``<prefix>.shared``,
* MIG instance partitioned in advance: ``<product>/mig-<profile>-mixed``, per
  ``<vendor>/mig-<profile>``.

Amounts are thousandths: one card is 1000.
"""

from collections.abc import Collection, Mapping

import msgspec

from allotment_proto.facts import Selection

PRODUCT = ".product"
_MEMORY = ".memory"
_REPLICAS = ".replicas"
_SHARED = ".shared"
_MIG = "mig-"
ALTERNATIVES = "|"
EXAMPLE = "nvidia.com/gpu.product"
_MIB_A_GIB = 1024


class Card(msgspec.Struct, frozen=True):
    """A card by the name under which quotas count it.

    `resource` is what pods request to get a whole one, `memory_mib` its memory (0: unknown, so it
    cannot be counted by share).
    """

    name: str
    resource: str
    memory_mib: int = 0


def discover(labels: Mapping[str, str], allocatable: Collection[str]) -> tuple[Card, ...]:
    """The cards that a node offers, by name; empty if its labels do not name them."""
    found: dict[str, Card] = {}
    for label, product in sorted(labels.items()):
        prefix, dot, rest = label.rpartition(".")
        if not dot or rest != PRODUCT[1:] or "/" not in prefix or not product:
            continue
        memory_mib = _whole(labels.get(prefix + _MEMORY))
        for card in _of_prefix(prefix, product, memory_mib, labels, allocatable):
            found.setdefault(card.name, card)
    return tuple(found[name] for name in sorted(found))


def _of_prefix(
    prefix: str,
    product: str,
    memory_mib: int,
    labels: Mapping[str, str],
    allocatable: Collection[str],
) -> list[Card]:
    cards = []
    vendor = prefix.partition("/")[0]
    for resource in sorted(allocatable):
        if resource == prefix:
            cards.append(Card(product, resource, memory_mib))
        elif resource == prefix + _SHARED:
            replicas = _whole(labels.get(prefix + _REPLICAS))
            gib = (memory_mib + _MIB_A_GIB // 2) // _MIB_A_GIB
            cards.append(Card(f"{product}/mps-{gib}g*1/{replicas}", resource))
        elif resource.startswith(f"{vendor}/{_MIG}"):
            profile = resource.removeprefix(f"{vendor}/{_MIG}")
            cards.append(Card(f"{product}/{_MIG}{profile}-mixed", resource))
    if not any(card.name == product for card in cards):
        # on nodes that only share, the name still stands for the model, for quotas by memory
        cards.append(Card(product, "", memory_mib))
    return cards


def _whole(text: str | None) -> int:
    """A label's integer; 0, which counts as unknown, if it is none."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= 12 else 0


def is_card(resource: str) -> bool:
    """Whether device plugins list GPUs under this resource, whatever labels say."""
    name = resource.partition("/")[2]
    return name in ("gpu", "gpu" + _SHARED) or name.startswith(_MIG)


def label_value(text: str) -> str:
    """A name as labels spell it: characters that labels cannot hold become dashes."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in text)


def spelled(selection: Selection) -> Selection:
    """Lists of types, spelled as in a product label."""
    if selection.use_types is None and selection.nouse_types is None:
        return selection
    use, nouse = (
        None if words is None else tuple(label_value(word) for word in words)
        for words in (selection.use_types, selection.nouse_types)
    )
    whole = tuple(label_value(word) for word in selection.whole_words)
    return msgspec.structs.replace(selection, use_types=use, nouse_types=nouse, whole_words=whole)


def alternatives(text: str) -> tuple[str, ...]:
    """``A|B`` → A, B: alternatives, the preferred first."""
    return tuple(name for part in text.split(ALTERNATIVES) if (name := part.strip()))
