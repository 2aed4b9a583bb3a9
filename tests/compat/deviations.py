"""Where the product answers otherwise than Volcano, on purpose, and why.

A deviation is declared by the number of the quirk of Volcano's that is not repeated (deviceshare
specification, section 10), or by the rule that bad input is refused. It applies to what a vector
*exercises*, never to a vector by name: a new vector that exercises the same quirk deviates without
anybody touching this table.
"""

from collections.abc import Callable
from typing import NamedTuple

from tests.compat import exercises as on
from tests.compat import exercises_ascend as ascend
from tests.compat import exercises_mig as mig
from tests.compat import exercises_requests as asks
from tests.compat.file import Vector

BAD_INPUT = "bad input is refused"
FINISHED = "finished pods"
"""Volcano frees their cards by number only when they are deleted."""
MPS = "mode mps"
"""Volcano has the word, and nothing behind it."""


class Deviation(NamedTuple):
    """`fields` are the last parts of the compared fields that come out otherwise."""

    quirk: str
    why: str
    applies: Callable[[Vector], bool]
    fields: frozenset[str]

    def covers(self, field: str) -> bool:
        return field.rsplit(".", 1)[-1] in self.fields


METRICS = frozenset(("metrics", "metricsAfterExisting"))
BOOKS = frozenset(("state", "stateAfterExisting")) | METRICS
ANSWER = frozenset(
    ("code", "error", "message", "wouldAllocate", "score", "hasRequest", "annotations")
)
DECISION = ANSWER | BOOKS

OUTCOME = DECISION | {"panic", "steps"}
INSTANCE = frozenset(("fit", "device_id", "instance_mem", "instance_mem_raw", "group", "position"))
NODE = frozenset(("mode", "devices"))
CHIPS = frozenset(("npu-core", "freeAfter"))

DEVIATIONS = (
    Deviation(
        "Q3",
        "an instance counts as held from the moment it is given, and is never given twice",
        lambda v: mig.gives_instances(v) or mig.holds_an_instance_twice(v),
        DECISION,
    ),
    Deviation(
        "Q4",
        "every profile of the chosen geometry is offered, also one of which nothing is used yet",
        mig.uses_part_of_a_geometry,
        DECISION | INSTANCE | {"device_used"},
    ),
    Deviation(
        "Q5",
        "a geometry is free to be chosen again when its last instance is released",
        lambda v: (on.has_mig_cards(v) and mig.gives_back(v)) or mig.keeps_a_geometry(v),
        DECISION | INSTANCE | {"device_used"},
    ),
    Deviation(
        "Q6",
        "an id that names no instance takes its card out of use until it is mended",
        mig.names_no_instance,
        OUTCOME | {"device_used", "pod_used"},
    ),
    Deviation(
        "Q6",
        "all of a MIG card's memory is its largest instance",
        mig.asks_for_a_whole_mig_card,
        DECISION,
    ),
    Deviation(
        "Q7",
        "spread scores an idle card with 100 points; Volcano tests idleness after taking the slot",
        on.spreads_over_cards,
        frozenset(("score", "score_at_most")),
    ),
    Deviation(
        "Q8",
        "a failed or discarded allocation gives back all that was reserved",
        on.releases_what_it_allocated,
        BOOKS,
    ),
    Deviation(
        "Q9",
        "a pod that is told of again is charged once",
        ascend.adds_a_pod_again,
        frozenset(("usage",)),
    ),
    Deviation(
        "Q11",
        "every container of a pod is charged on a card, not only the first",
        lambda v: on.holds_one_card_twice(v) or ascend.holds_for_several_containers(v),
        DECISION | {"usage"},
    ),
    Deviation(
        "Q12",
        "a request for 0 cards is no request: it reserves nothing and writes nothing",
        lambda v: asks.asks_for_zero_cards(v) or ascend.asks_for_zero_chips(v),
        DECISION | CHIPS | {"requests"},
    ),
    Deviation(
        "Q15",
        "unhealthy cards are skipped",
        lambda v: on.has_unhealthy_cards(v) or ascend.has_unhealthy_chips(v),
        DECISION,
    ),
    Deviation(
        "Q17",
        "of equal cards the first by index is taken, not one at random",
        lambda v: v.nondeterministic and not ascend.is_mindcluster(v),
        frozenset(("wouldAllocate", "annotations", "state", "score")),
    ),
    Deviation(
        "Q17",
        "after a choice at random everything may come out otherwise",
        lambda v: v.nondeterministic and not ascend.is_mindcluster(v) and on.goes_on(v),
        DECISION,
    ),
    Deviation(
        "Q19",
        "a pod that is being deleted holds its cards until it is gone",
        on.has_leaving_pods,
        DECISION,
    ),
    Deviation(
        "Q21",
        "a hole in the register string is no card; Volcano dereferences nil",
        lambda v: "::" in on.register(v),
        OUTCOME,
    ),
    Deviation(
        "Q22",
        "lists are trimmed, and ids match exactly",
        lambda v: (
            asks.types_need_trimming(v)
            or on.unhealthy_ids_need_trimming(v)
            or on.ids_match_in_part(v)
        ),
        DECISION | {"devices", "allowed"},
    ),
    Deviation(
        "Q23",
        "more memory than a chip has is refused, not given as none",
        ascend.asks_for_more_than_a_chip,
        DECISION | {"memory", "ok"},
    ),
    Deviation(
        "Q24",
        "what no chip can give is refused at once, and what it can give is charged as it is given",
        lambda v: (
            ascend.asks_for_no_template(v)
            or ascend.fails_late(v)
            or ascend.may_be_downgraded(v)
            or ascend.gives_back(v)
        ),
        DECISION | CHIPS,
    ),
    Deviation(
        "Q24",
        "a node without room is refused by the filter, not only when chips are given",
        ascend.passes_where_pieces_are,
        frozenset(("code", "error")),
    ),
    Deviation(
        "Q24",
        "pods with different templates, and with whole chips, share a node",
        ascend.mixes_templates,
        DECISION | CHIPS,
    ),
    Deviation(
        "Q25",
        "without a ConfigMap percentages can be asked for, and MIG cards have their tables",
        on.has_no_config_map,
        OUTCOME | NODE,
    ),
    Deviation(
        "Q27",
        "a Binding carries our own annotations only: nothing of the pod's is merged or rewritten",
        lambda v: v.function in ("binding_object", "task_annotations"),
        frozenset(("binding_annotations", "result")),
    ),
    Deviation(
        "Q28",
        "metrics are read off the books, in which a pod that is told of again counts once",
        on.tells_of_a_pod_again,
        METRICS,
    ),
    Deviation(
        "Q28",
        "metrics are read off the books, in which a reservation counts at once",
        on.measures_allocations,
        METRICS,
    ),
    Deviation(
        "Q29",
        "what a failed allocation charged is given back whole",
        lambda v: on.has_mig_cards(v) and mig.fails_to_allocate(v),
        BOOKS,
    ),
    Deviation(
        MPS,
        "mps is a mode of its own: its nodes take pods that ask for it, and none that do not",
        on.concerns_mps,
        OUTCOME | NODE,
    ),
    Deviation(
        BAD_INPUT,
        "amounts without a number, fractions, absurd values: the pod's problem, said in words",
        lambda v: (
            asks.has_bad_request(v)
            or asks.has_bad_share(v)
            or ascend.has_bad_request(v)
            or ascend.asks_for_parts_beside_others(v)
        ),
        DECISION | {"requests", "value"},
    ),
    Deviation(
        BAD_INPUT,
        "a pod is refused that asks in an init container: no device plugin serves those",
        asks.asks_in_init,
        DECISION | {"requests", "value"},
    ),
    Deviation(
        BAD_INPUT,
        "a card needs an id of its own, memory and room for pods, or it takes nothing",
        lambda v: (
            on.has_bad_register(v)
            or asks.asks_for_no_card(v)
            or ascend.has_bad_chips(v)
            or ascend.has_chips_without_memory(v)
        ),
        OUTCOME | {"registered", "devices", "mode", "allowed", "types", "ignored"},
    ),
    Deviation(
        BAD_INPUT,
        "cards of one node with different modes are said to be wrong, and shared as the node is",
        on.mixes_modes,
        frozenset(("devices",)),
    ),
    Deviation(
        BAD_INPUT,
        "a pod that holds nobody knows what closes its node's cards until it is mended",
        on.has_broken_holder,
        DECISION,
    ),
    Deviation(
        FINISHED,
        "a pod that has ended holds nothing",
        on.has_finished_pods,
        DECISION,
    ),
    Deviation(
        BAD_INPUT,
        "an empty list of types means neither all nor none, and an unknown mode matches nothing",
        asks.has_bad_selection,
        DECISION | {"allowed"},
    ),
)
