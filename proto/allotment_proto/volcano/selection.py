"""The pod annotations with which users choose cards → `Selection`.

Lists are trimmed and empty items dropped. A list that says nothing (only separators) counts as not
given, except that an empty *deny* or *allow* list of types never silently means "all" or "none":
it is reported (upstream reads an empty `use` as everything and an empty `nouse` as nothing fits).
"""

from collections.abc import Mapping

import msgspec

from allotment_proto.facts import Problem, Selection
from allotment_proto.volcano import gpushare, keys

MODES = (keys.MODE_HAMI_CORE, keys.MODE_MIG, keys.MODE_MPS)
TYPE_KEYS = frozenset((keys.USE_GPUTYPE, keys.NOUSE_GPUTYPE))
"""Annotations with lists of card types."""
CARD_KEYS = (keys.GPU_INDEX, keys.USE_GPUUUID, keys.NOUSE_GPUUUID)
"""Annotations that name single cards."""
KEYS = frozenset((keys.VGPU_MODE, *TYPE_KEYS, *CARD_KEYS))
"""All that is read here."""


def decode(annotations: Mapping[str, str]) -> tuple[Selection, tuple[Problem, ...]]:
    """The selection of a pod, and what in it cannot be meant."""
    chosen, of_types = decode_types(annotations)
    problems: list[Problem] = []
    indexes: tuple[int, ...] | None = None
    if keys.GPU_INDEX in annotations:
        place = f"annotation {keys.GPU_INDEX}"
        indexes, found = gpushare.decode_indexes(annotations[keys.GPU_INDEX], place)
        problems.extend(found)
        if not indexes and not found:
            problems.append(
                _invalid(keys.GPU_INDEX, annotations[keys.GPU_INDEX], "card indexes like 0,2")
            )
    mode = annotations.get(keys.VGPU_MODE)
    if mode is not None and mode not in MODES:
        problems.append(_invalid(keys.VGPU_MODE, mode, " or ".join(MODES)))
    selection = msgspec.structs.replace(
        chosen,
        mode=mode,
        use_ids=_words(annotations, keys.USE_GPUUUID),
        nouse_ids=_words(annotations, keys.NOUSE_GPUUUID),
        indexes=indexes,
    )
    return selection, (*problems, *of_types)


def decode_types(annotations: Mapping[str, str]) -> tuple[Selection, tuple[Problem, ...]]:
    """The same, of the lists of card types alone."""
    problems: list[Problem] = []

    def types(key: str) -> tuple[str, ...] | None:
        found = _words(annotations, key)
        if found is None and key in annotations:
            problems.append(_invalid(key, annotations[key], "a comma list of card types"))
        return found

    use_types = types(keys.USE_GPUTYPE)
    nouse_types = None if use_types is not None else types(keys.NOUSE_GPUTYPE)
    return Selection(use_types=use_types, nouse_types=nouse_types), tuple(problems)


def _words(annotations: Mapping[str, str], key: str) -> tuple[str, ...] | None:
    if key not in annotations:
        return None
    return tuple(w for w in (item.strip() for item in annotations[key].split(",")) if w) or None


def _invalid(key: str, value: str, wanted: str) -> Problem:
    return Problem("InvalidSelection", f"annotation {key}", f"is {value!r}; wanted: {wanted}")
