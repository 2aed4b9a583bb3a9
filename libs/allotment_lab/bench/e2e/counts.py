"""What `allot bench e2e` reads besides the watch: requests, the plugins' books, times of decisions.

The API server says how often it was asked for what (`apiserver_request_total`, the local one and a
kube-apiserver alike), local mode's plugins what they handed out, and the log when each pod was
decided.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import anyio
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from allotment.answers.source import Origin
from allotment.core.errors import AllotError
from allotment_cli.options.source import open_source
from allotment_cli.show.output import note
from allotment_lab.bench.e2e.load import BareClient
from allotment_lab.bench.pipeline_load import decode_decision
from allotment_proto import subjects

FAMILY = "apiserver_request"
PASSED_OVER = frozenset(
    ("leases", "subjectaccessreviews", "tokenreviews", "selfsubjectaccessreviews", "flowschemas")
)
"""What an API server and its own components ask about with or without pods."""
SETTLED_S = 1.0
SETTLED_WITHIN_S = 30.0
_BOOKS = "/debug/cards"


class _Counts(msgspec.Struct):
    counts: dict[str, int]


async def requests(bare: BareClient) -> Counter[str] | None:
    """How often the API server was asked so far, by verb and resource, the bench's own requests
    left out; None if it does not say.
    """
    try:
        page = await bare.send("GET", "/metrics", None, (200,))
    except AllotError as error:
        note(f"requests are not counted: {error.message}")
        return None
    found: Counter[str] = Counter()
    for family in text_string_to_metric_families(page.decode()):
        if family.name == FAMILY:
            for sample in family.samples:
                if sample.labels.get("resource", "") not in PASSED_OVER:
                    found[kind_of(sample.labels)] += round(sample.value)
    return found - bare.sent


async def requests_settled(bare: BareClient) -> Counter[str] | None:
    """The same once no requests about pods come, for a bounded time: on a busy machine services
    that have work left may look idle.
    """
    found = await requests(bare)
    with anyio.move_on_after(SETTLED_WITHIN_S):
        while found is not None:
            await anyio.sleep(SETTLED_S)
            before, found = found, await requests(bare)
            if found is not None and _about_pods(found) == _about_pods(before):
                break
    return found


def _about_pods(counts: Counter[str]) -> dict[str, int]:
    return {kind: n for kind, n in counts.items() if "pods" in kind or "events" in kind}


def kind_of(labels: Mapping[str, str]) -> str:
    """`POST pods/binding`: a verb and a resource as labels of a metric say them."""
    part = labels.get("subresource", "")
    return f"{labels['verb']} {labels.get('resource', '')}{'/' if part else ''}{part}"


async def books(bare: BareClient) -> dict[str, int]:
    """What went wrong so far by the books of local mode's device plugins."""
    page = await bare.send("GET", _BOOKS, None, (200,))
    return msgspec.json.decode(page, type=_Counts).counts


async def decided_s(origin: Origin, uids: Iterable[str], after_seq: int) -> dict[str, float]:
    """When the log took the decision that placed each of these pods, on the monotonic clock."""
    wanted = set(uids)
    to_monotonic_s = time.monotonic() - time.time()
    found: dict[str, float] = {}
    async with open_source(origin) as source:
        async for batch in source.read(after_seq + 1, await source.last_seq()):
            for record in batch:
                if record.subject != subjects.DECISION:
                    continue
                for cycle in decode_decision(record.payload).events:
                    for placement in cycle.placements:
                        if placement.uid in wanted:
                            found[placement.uid] = record.time_ns / 1e9 + to_monotonic_s
    return found


async def log_end(origin: Origin) -> int:
    """The sequence of the log's last record."""
    async with open_source(origin) as source:
        return await source.last_seq()


def local(home: Path) -> Origin:
    """The log of a local mode."""
    return Origin(home)
