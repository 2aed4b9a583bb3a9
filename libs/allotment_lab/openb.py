"""The openb production trace (Alibaba cluster-trace-gpu-v2023) → nodes and pods.

Nodes: `sn,cpu_milli,memory_mib,gpu,model`. Pods: `name,cpu_milli,memory_mib,num_gpu,gpu_milli`,
and where recorded also `gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time`
(seconds); `strange_columns` tells of others. A card counts as 1000 units of memory, one for each
thousandth that the trace shares it in, and a pod's `gpu_milli` is what it takes of every card;
compute is not limited apart from that.
"""

import csv
from collections.abc import Iterator

from allotment.core.config.report import hint
from allotment_lab.workload import (
    NAMESPACE,
    SCHEDULER,
    Arrival,
    WorkloadError,
    repeated,
    shown,
    whole,
)
from allotment_proto.events import NodeObserved, PodObserved
from allotment_proto.facts import CardFact, DeviceRequest, Inventory, PodRequest, Selection

CARD_MILLI = 1000
MIB = 1 << 20
PODS_PER_NODE = 1_000_000
"""No limit: the trace records none."""
CARDS_MAX = 64
CPU_MILLI_MAX = 10**9
MEMORY_MIB_MAX = 10**9
SECONDS_MAX = 10**12
MODE = "hami-core"

NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
TIME_COLUMNS = ("creation_time", "deletion_time")
KNOWN_OF_PODS = (*POD_COLUMNS, "gpu_spec", "qos", "pod_phase", *TIME_COLUMNS, "scheduled_time")
"""All that the trace's pod lists have, also what is not used."""

_Row = tuple[str, dict[str, str]]


def model_word(model: str) -> str:
    """A model as a word that is a part of no other: types are matched by parts of the name."""
    return f"[{model}]"


def parse_nodes(text: str, source: str) -> tuple[NodeObserved, ...]:
    """The nodes of a node list. Raises `WorkloadError` naming line, column, value and remedy."""
    problems: list[str] = []
    nodes: list[NodeObserved] = []
    names: list[tuple[str, str]] = []
    for place, row in _rows(text, source, NODE_COLUMNS, problems):
        name, model = row["sn"], row["model"]
        names.append((place, name))
        if not name:
            problems.append(f"{place}, column sn: is empty; wanted: the node's name")
        cards = whole(row, "gpu", place, problems, 0, CARDS_MAX)
        if cards and (not model or set(model) & set("|[],:;")):
            wanted = "the model of its cards, without | [ ] , : or ;"
            problems.append(f"{place}, column model: is {shown(model)}; wanted: {wanted}")
        cpu_milli = whole(row, "cpu_milli", place, problems, 0, CPU_MILLI_MAX)
        memory_mib = whole(row, "memory_mib", place, problems, 0, MEMORY_MIB_MAX)
        nodes.append(_node(name, cpu_milli, memory_mib, cards, model))
    problems += repeated(names, "sn")
    if problems:
        raise WorkloadError(problems)
    if not nodes:
        raise WorkloadError([f"{source}: has no rows; wanted: at least one node"])
    return tuple(nodes)


def parse_pods(text: str, source: str) -> tuple[tuple[Arrival, ...], bool]:
    """The pods of a pod list, and whether it says when they come and go.

    Raises `WorkloadError` naming line, column, value and remedy.
    """
    problems: list[str] = []
    arrivals: list[Arrival] = []
    names: list[tuple[str, str]] = []
    requests: dict[tuple[str, ...], PodRequest] = {}
    is_timed = True
    for place, row in _rows(text, source, POD_COLUMNS, problems):
        name = row["name"]
        names.append((place, name))
        if not name:
            problems.append(f"{place}, column name: is empty; wanted: the pod's name")
        key = (*(row[column] for column in POD_COLUMNS[1:]), row.get("gpu_spec", ""))
        request = requests.get(key)
        if request is None:
            before = len(problems)
            request = _request(row, place, problems)
            if len(problems) == before:
                requests[key] = request
        created_s, deleted_s = 0, None
        if all(column in row for column in TIME_COLUMNS):
            created_s, deleted_s = _times(row, place, problems)
        else:
            is_timed = False
        fact = PodObserved(
            uid=name,
            namespace=NAMESPACE,
            name=name,
            rv=1,
            created_ms=0,
            scheduler=SCHEDULER,
            phase="Pending",
            request=request,
        )
        arrivals.append(Arrival(fact, created_s, deleted_s))
    problems += repeated(names, "name")
    if problems:
        raise WorkloadError(problems)
    if not arrivals:
        raise WorkloadError([f"{source}: has no rows; wanted: at least one pod"])
    return tuple(arrivals), is_timed


def strange_columns(text: str, source: str, known: tuple[str, ...]) -> list[str]:
    """A warning for each column that is not known: it may be a misspelt one that is not needed."""
    place, header = next(_lines(text, source, []), (source, []))
    absent = [column for column in known if column not in header]
    return [
        f"{place}: column {shown(name)} is not known and not read; {hint(name, absent or known)}"
        for name in header
        if name not in known
    ]


def _rows(text: str, source: str, required: tuple[str, ...], problems: list[str]) -> Iterator[_Row]:
    """Each row that has as many values as the header has columns, with its place."""
    lines = _lines(text, source, problems)
    place, header = next(lines, (f"{source}:1", []))
    if problems:
        return
    missing = [column for column in required if column not in header]
    if missing or len(set(header)) < len(header):
        wanted = f"each once, at least {','.join(required)}"
        if missing:
            wanted += f"; missing: {','.join(missing)}"
        problems.append(f"{place}: columns are {shown(','.join(header))}; wanted: {wanted}")
        return
    for place, values in lines:
        if len(values) != len(header):
            found = f"has {len(values)} value{'' if len(values) == 1 else 's'}"
            problems.append(f"{place}: {found}; wanted: {len(header)}, as many as columns")
            continue
        yield place, dict(zip(header, values, strict=True))


def _lines(text: str, source: str, problems: list[str]) -> Iterator[tuple[str, list[str]]]:
    """The values of every line that is not empty, with its place. Ends at a quote that is not
    closed on its line: all that follows would be one value.
    """
    reader = csv.reader(text.removeprefix("\ufeff").splitlines())
    while True:
        number = reader.line_num + 1
        place = f"{source}:{number}"
        values, is_too_long = None, False
        try:
            values = next(reader, None)
        except csv.Error:
            is_too_long = True
        if reader.line_num > number:
            problems.append(f'{place}: a quote is not closed; wanted: " at both ends of a value')
            return
        if is_too_long:
            problems.append(f"{place}: a value is too long; wanted: values like those of the trace")
            return
        if values is None:
            return
        if values:
            yield place, [value.strip() for value in values]


def _node(name: str, cpu_milli: int, memory_mib: int, cards: int, model: str) -> NodeObserved:
    facts = tuple(
        CardFact(
            id=f"{name}/{index}",
            index=index,
            model=f"NVIDIA-{model_word(model)}",
            slots=CARD_MILLI,
            memory_mib=CARD_MILLI,
            cores_pct=100,
            healthy=True,
            mode=MODE,
        )
        for index in range(cards)
    )
    return NodeObserved(
        name=name,
        uid=name,
        rv=1,
        cpu_milli=cpu_milli,
        memory_bytes=memory_mib * MIB,
        pods=PODS_PER_NODE,
        inventories=(Inventory("vgpu", MODE, facts),) if facts else (),
    )


def _request(row: dict[str, str], place: str, problems: list[str]) -> PodRequest:
    before = len(problems)
    cards = whole(row, "num_gpu", place, problems, 0, CARDS_MAX)
    least, most = (1, CARD_MILLI) if cards else (0, 0)
    if len(problems) > before:  # it is unknown how many were meant
        least, most = 0, CARD_MILLI
    card_milli = whole(row, "gpu_milli", place, problems, least, most)
    spec = row.get("gpu_spec", "")
    models = tuple(sorted({word.strip() for word in spec.split("|")})) if spec else ()
    if not all(models):
        wanted = "models separated by |, or nothing"
        problems.append(f"{place}, column gpu_spec: is {shown(spec)}; wanted: {wanted}")
    use_types = tuple(model_word(model) for model in models) or None
    ask = DeviceRequest("vgpu", 0, "main", cards, card_milli, 0, 0)
    return PodRequest(
        cpu_milli=whole(row, "cpu_milli", place, problems, 0, CPU_MILLI_MAX),
        memory_bytes=whole(row, "memory_mib", place, problems, 0, MEMORY_MIB_MAX) * MIB,
        devices=(ask,) if cards else (),
        selection=Selection(use_types=use_types if cards else None),
    )


def _times(row: dict[str, str], place: str, problems: list[str]) -> tuple[int, int | None]:
    created_s = whole(row, "creation_time", place, problems, 0, SECONDS_MAX)
    if not row["deletion_time"]:
        return created_s, None
    deleted_s = whole(
        row,
        "deletion_time",
        place,
        problems,
        created_s,
        SECONDS_MAX,
        least_is="creation_time",
    )
    return created_s, deleted_s
