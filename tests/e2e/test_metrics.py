"""Every metric of every service is in `deploy/METRICS.md` as it is, and what is there exists."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.documented_metrics import documented
from tests.e2e.jobs import NODES, create
from tests.e2e.stack import ROLES, Stack, vgpu
from tests.waiting import PATIENCE_S

SERVICES = ("watcher", "filter", "scorer", "binder", "controller", "archiver", "inspector")
FOREIGN = ("process_", "python_")
"""What the client library tells of any process."""


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    options = {role: ["--scheduler-names", "volcano"] for role in ("watcher", "controller")}
    options["archiver"] = ["--archive", str(tmp_path / "archive")]
    services = (*ROLES, "archiver", "inspector")
    with Stack(tmp_path, NODES, services=services, options=options, controlled=True) as running:
        yield running


def scrape(stack: Stack, service: str) -> dict[str, Metric]:
    """The metrics of a service, counters by the names of their samples."""
    url = f"http://{stack.processes[service].announced['http']}/metrics"
    with urlopen(url, timeout=PATIENCE_S) as answer:
        text = answer.read().decode()
    found = {}
    for family in text_string_to_metric_families(text):
        total = f"# TYPE {family.name}_total counter"
        name = f"{family.name}_total" if total in text else family.name
        if not name.startswith(FOREIGN) and not name.endswith("_created"):
            found[name] = family
    return found


def labels_of(family: Metric) -> set[str]:
    return {label for sample in family.samples for label in sample.labels} - {"le"}


def services_of(where: str) -> set[str]:
    """The services that a row names: by name, or all, or all but some."""
    named, _, others = where.partition(" but ")
    if named == "all":
        return set(SERVICES) - {other for other in others.split(", ") if other}
    return set(where.split(", "))


def test_what_is_scraped_is_what_is_documented(stack: Stack) -> None:
    create(stack, "runs", 2)
    stack.until(lambda: len(stack.bound()) == 2, "two run")
    resources = {"limits": vgpu(memory=9000)}  # of three such there is room for two
    container = {"name": "main", "image": "i:1", "resources": resources}
    worker = {"name": "worker", "replicas": 3, "template": {"spec": {"containers": [container]}}}
    create(stack, "waits", 3, tasks=[worker])
    stack.until(
        lambda: stack.metric("scorer", "volcano_unschedule_job_count") == 1, "the gang is told"
    )
    said = documented()
    where: dict[str, set[str]] = {}
    for service in SERVICES:
        for name, family in scrape(stack, service).items():
            where.setdefault(name, set()).add(service)
            assert name in said, f"{service} has {name}"
            row = said[name]
            assert row["kind"] == family.type, name
            assert labels_of(family) <= set(re.findall(r"`(\w+)`", row["labels"])), name
    for name, row in said.items():
        assert where.get(name) == services_of(row["where"]), name
    scorer, binder = scrape(stack, "scorer"), scrape(stack, "binder")
    samples = {
        (sample.name.removeprefix("volcano_"), sample.labels.get("stage", "")): sample.value
        for service in (scorer, binder)
        for family in service.values()
        for sample in family.samples
    }
    for stage in ("Watched", "Assumed", "Bound", "PreBound"):
        wanted = 5 if stage == "Watched" else 2
        assert samples["task_scheduling_latency_milliseconds_count", stage] == wanted
    for stage in ("PreBind", "Bind"):
        assert samples["scheduling_stage_duration_milliseconds_count", stage] == 2
    assert samples["pods_bound_total", ""] == 2
