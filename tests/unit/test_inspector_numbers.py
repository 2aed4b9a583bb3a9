"""The pages and the commands that they print count the same things alike."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from click.testing import CliRunner

from allotment.adapters.log import exported
from allotment.core.explain.rows.pod_views import ELSEWHERE, GATED, WAITING
from allotment_cli.main import main
from allotment_inspector.history import History
from allotment_proto import subjects
from tests.inspecting import history_of, view_of
from tests.recording import Recorder, busy_cluster, uid_of
from tests.recording_batch import busy_queues, preempted


def with_others() -> Recorder:
    """The busy cluster with a pod behind a gate and two of another scheduler."""
    log = busy_cluster()
    fact = log.state.pods[uid_of("research/llama")].fact
    for name, changes in (
        ("gated", {"gated": True}),
        ("theirs", {"scheduler": "default-scheduler"}),
        ("theirs-too", {"scheduler": "default-scheduler"}),
    ):
        changed = msgspec.structs.replace(fact, uid=name, name=name, **changes)
        log.append(subjects.pod(name), "watcher/0", changed)
    return log


def looked(history: History, name: str, seq: int | None = None) -> Any:
    """What the view of a page returns."""
    return anyio.run(lambda: view_of(history, name, seq=seq))


def asked(file: Path, *words: str) -> Any:
    """What a command prints as JSON about an exported log."""
    result = CliRunner().invoke(main, [*words, "--file", str(file), "-o", "json"])
    assert result.exit_code in (0, 1), result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize("make", [busy_cluster, busy_queues, preempted, with_others])
def test_page_list_and_doctor_count_waiting_pods_and_problems_alike(
    make: Callable[[], Recorder], tmp_path: Path
) -> None:
    records = make().records
    file = tmp_path / "log.jsonl"
    file.write_text("".join(f"{exported.encode(record)}\n" for record in records))
    history, _ = history_of(records)
    for seq in (len(records) // 2, len(records)):
        at = ("--at", str(seq))
        the_map = looked(history, "cards", seq=seq)
        pods = looked(history, "pods", seq=seq)
        listed = asked(file, "get", "pods", "-A", "--pending", *at)["items"]
        report = asked(file, "doctor", *at)
        waiting = the_map.totals.waiting
        assert waiting == pods.counts.get(WAITING, 0) == len(listed)
        assert waiting == sum(row["pods"] for row in report["summary"]["waiting"])
        assert waiting == sum(each.count for each in the_map.waiting)
        assert the_map.look_total == len(report["findings"])
        assert [each.where for each in the_map.look] == [
            each["subject"] for each in report["findings"]
        ]


def test_gated_pods_and_pods_of_other_schedulers_are_counted_apart(tmp_path: Path) -> None:
    records = with_others().records
    history, _ = history_of(records)
    the_map, pods = looked(history, "cards"), looked(history, "pods")
    assert the_map.apart == {GATED: 1, ELSEWHERE: 2}
    assert {pods.counts[GATED], pods.counts[ELSEWHERE]} == {1, 2}
    file = tmp_path / "log.jsonl"
    file.write_text("".join(f"{exported.encode(record)}\n" for record in records))
    result = CliRunner().invoke(main, ["get", "pods", "-A", "--pending", "--file", str(file)])
    assert "1 gated, 2 of other schedulers" in result.stderr
