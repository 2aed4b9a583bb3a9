"""The pod annotations with which users choose cards → `Selection`.

Lists are trimmed and empty items dropped. A list that says nothing (only separators) counts as not
given, except that an empty *deny* or *allow* list of types never silently means "all" or "none":
it is reported (upstream reads an empty `use` as everything and an empty `nouse` as nothing fits).
"""

from collections.abc import Mapping

from allotment_proto.facts import Problem, Selection
from allotment_proto.volcano import gpushare, keys

MODES = (keys.MODE_HAMI_CORE, keys.MODE_MIG, keys.MODE_MPS)


def decode(annotations: Mapping[str, str]) -> tuple[Selection, tuple[Problem, ...]]:
    """The selection of a pod, and what in it cannot be meant."""
    problems: list[Problem] = []

    def words(key: str) -> tuple[str, ...] | None:
        if key not in annotations:
            return None
        return tuple(w for w in (item.strip() for item in annotations[key].split(",")) if w) or None

    def types(key: str) -> tuple[str, ...] | None:
        found = words(key)
        if found is None and key in annotations:
            problems.append(_invalid(key, annotations[key], "a comma list of card types"))
        return found

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
    use_types = types(keys.USE_GPUTYPE)
    selection = Selection(
        mode=mode,
        use_types=use_types,
        nouse_types=None if use_types is not None else types(keys.NOUSE_GPUTYPE),
        use_ids=words(keys.USE_GPUUUID),
        nouse_ids=words(keys.NOUSE_GPUUUID),
        indexes=indexes,
    )
    return selection, tuple(problems)


def _invalid(key: str, value: str, wanted: str) -> Problem:
    return Problem("InvalidSelection", f"annotation {key}", f"is {value!r}; wanted: {wanted}")
