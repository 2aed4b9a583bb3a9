"""The example manifests are pods that the watcher reads without a complaint, and are all listed."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from allotment_proto.facts import Policy
from allotment_watcher.normalise import pod_fact
from allotment_watcher.objects import PodObject

EXAMPLES = Path(__file__).parents[2] / "deploy" / "examples"
FILES = sorted(EXAMPLES.glob("*.yaml"))


def pods(file: Path) -> list[dict[str, Any]]:
    return [body for body in yaml.safe_load_all(file.read_text()) if body["kind"] != "PodGroup"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_example_is_a_pod_that_asks_for_devices(file: Path) -> None:
    assert file.read_text().startswith("# "), "a comment says what it shows"
    for number, body in enumerate(pods(file), 1):
        body["metadata"] |= {
            "uid": f"u{number}",
            "namespace": "default",
            "resourceVersion": "1",
            "creationTimestamp": "2026-11-20T14:00:00Z",
        }
        read = msgspec.json.decode(msgspec.json.encode(body), type=PodObject)
        fact = pod_fact(read, Policy(scheduler_names=("allotment", "volcano")))
        assert fact.problem is None
        assert fact.scheduler in ("allotment", "volcano")
        assert fact.request.devices or fact.request.extended


def test_examples_are_numbered_and_named_once() -> None:
    assert [int(file.name[:2]) for file in FILES] == list(range(1, len(FILES) + 1))
    names = [body["metadata"]["name"] for file in FILES for body in pods(file)]
    assert len(names) == len(set(names))


def test_the_readme_lists_every_example() -> None:
    readme = (EXAMPLES / "README.md").read_text()
    assert [file.name for file in FILES if f"`{file.name}`" not in readme] == []
