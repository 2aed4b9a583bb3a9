"""`allot demo`: a few lines of results, every screen with --verbose, and nothing left running."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from tests.documents import blocks, section
from tests.e2e.browser import Looking, chromium

HEADINGS = (
    "=== Placements",
    "=== allot explain pod default/hami-core",
    "=== allot explain pod default/never-fits",
    "=== allot trace default/hami-core",
    "=== allot ledger",
    "=== Environment set by device plugins",
    "=== Jobs that run whole: distributed and three-workers",
    "=== allot explain gang default/too-big",
    "=== allot explain queue small",
    "=== allot job list",
    "=== allot queue list",
    "=== allot story default/background-worker-",
    "=== allot story default/urgent-worker-0",
    "=== allot explain pod default/background-worker-",
    "=== allot replay --verify",
)


RESULTS_MOST = 10
"""Lines that the demo ends with."""
ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "deploy/images"


def start(temporary: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "allotment_cli.main", "demo", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )


def left_behind(temporary: Path) -> list[str]:
    """Command lines of processes that name the demo's directory."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = each.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if str(temporary) in words:
            found.append(words)
    return found


@pytest.mark.slow
@pytest.mark.timeout(150)
def test_the_demo(tmp_path: Path) -> None:
    demo = start(tmp_path, "--verbose")
    out, err = demo.communicate(timeout=140)
    assert demo.returncode == 0, err
    assert out.splitlines()[-1] == "demo: ok"
    results = out.rpartition("\n\n")[2]
    assert len(results.splitlines()) <= RESULTS_MOST
    assert "26 of 27 example pods" in results
    assert re.search(r"^urgent-worker-0 preempted [4-8] pods", results, re.MULTILINE)
    places = [out.index(heading) for heading in HEADINGS]
    assert places == sorted(places)
    assert "fits an empty cluster: no" in out
    rows = out[places[0] : places[1]]
    ended = rows.count(" Succeeded ")  # the second to have its turn may have had it by then
    assert ended in (1, 2)
    assert rows.count(" Running ") == 26 - ended
    cells = [re.split(" {2,}", line) for line in rows.splitlines() if " Running " in line]
    placed = {pod: (node, cards) for pod, _, node, _, cards, *_ in cells}
    holders = Counter((node, card) for node, cards in placed.values() for card in cards.split(","))
    for number in (1, 2, 3):  # which card is fullest depends on who was seen before
        assert holders[placed[f"default/share-{number}"]] > 1, "no card is opened for a small pod"
    assert placed["default/mig-slice"][0] == "gpu-mig"
    assert placed["default/mps-share"][0] == "gpu-mps"
    assert placed["default/ascend-share-1"] == placed["default/ascend-share-2"]
    assert placed["default/ascend-pair"][0] == "npu-910b"
    assert placed["default/ascend-310p"] == ("npu-310p", "NPU-0[vir02]")
    for apart in ("exclusive", "spread"):
        assert placed[f"default/{apart}-1"] != placed[f"default/{apart}-2"]
    for kind in ("hami-core", "mig", "mps"):
        assert f"vgpu {kind} " in rows
    told = out[places[5] : places[6]]
    for variable in ("CUDA_DEVICE_MEMORY_LIMIT_0", "CUDA_DEVICE_SM_LIMIT", "ASCEND_VNPU_SPECS"):
        assert variable in told
    assert "MIG-" in told
    workers, gang, queue, jobs, queues = (out[start:end] for start, end in pairwise(places[6:12]))
    decided = {line.split()[0]: line.split()[1] for line in workers.splitlines() if " d-" in line}
    assert len(decided) == 4 + 3
    for job in ("distributed", "three-workers"):
        assert len({by for pod, by in decided.items() if f"/{job}-" in pod}) == 1
    assert "2 of 4 can be placed together now, 2 short" in gang
    assert "InsufficientGPUMemory 1" in gang
    assert "QueueQuotaInsufficient" in queue
    phases = {line.split()[0]: line.split()[2] for line in jobs.splitlines()[3:] if line}
    assert phases == {
        "distributed": "Running",
        "over-quota": "Pending",
        "three-workers": "Running",
        "too-big": "Pending",
    }
    assert {line.split()[0] for line in queues.splitlines()[3:] if line} == {
        "default",
        "root",
        "small",
    }
    spans = out[places[3] : places[4]]
    assert re.search(r"Trace {6}[0-9a-f]{32}$", spans, re.MULTILINE)
    assert all(f" {name} " in spans for name in ("waiting", "attempt", "filter", "score", "check"))
    victim, urgent, successor = (out[start:end] for start, end in pairwise(places[11:15]))
    assert re.search(r"preempted for default/urgent-\S+ by decision \d+", victim)
    assert "urgent-worker-0 got gpu-a100" in victim
    assert urgent.count("background-worker-") >= 4, "it says whom it displaced"
    assert "What would make it fit now" in successor
    assert left_behind(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is missing")
@pytest.mark.skipif(not (ROOT / ".venv/.installed").exists(), reason="not installed by make")
def test_the_readme_can_be_followed_to_a_page_that_stays(tmp_path: Path, rewrite: bool) -> None:
    """With --rewrite the pictures in the documents are taken of that page."""
    demo, then = blocks(section("README.md", "Try it"))
    keep = next(line for line in demo.splitlines() if "--keep" in line)
    ended = shell(keep, tmp_path)
    try:
        assert ended.returncode == 0, ended.stderr
        *results, last = ended.stdout.strip().splitlines()[-RESULTS_MOST:]
        page = re.fullmatch(r"demo: ok, and still running; open (http://127\.0\.0\.1:\d+)", last)
        assert page is not None, last
        assert results[0].startswith("26 of 27 example pods"), "these are more than ten lines"
        with urllib.request.urlopen(page[1], timeout=10) as answer:
            assert answer.status == 200
        if rewrite:
            take_pictures(page[1])
        assert {"Next: allot explain pod default/never-fits", "Stop it: allot down"} < {*results}
        again = shell(keep, tmp_path)
        assert again.returncode != 0
        assert "already running" in again.stderr
        shown = shell(then, tmp_path)
        assert shown.returncode == 0, shown.stderr
        assert re.search(r"^hami-core +1/1 +Running ", shown.stdout, re.MULTILINE)
        assert re.search(r"^Pod +default/never-fits ", shown.stdout, re.MULTILINE)
    finally:
        shell(". .venv/bin/activate && allot down", tmp_path)
    assert left_behind(tmp_path) == []


def take_pictures(address: str) -> None:
    with chromium() as browser:
        page = Looking(browser, address).open()
        page.set_viewport_size({"width": 1120, "height": 740})
        page.screenshot(path=PICTURES / "map.png")
        page.get_by_text("never-fits").first.click()
        page.wait_for_url("**/pods/default/never-fits")
        page.screenshot(path=PICTURES / "pod.png")


def shell(script: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run lines of the README in the repository, as a user with an empty home directory."""
    return subprocess.run(
        ["bash", "-euc", script],
        cwd=ROOT,
        env={"HOME": str(home), "PATH": os.environ["PATH"], "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.timeout(100)
@pytest.mark.parametrize("after_s", [0.5, 4.0])
def test_the_demo_stopped_in_the_middle_leaves_no_process(tmp_path: Path, after_s: float) -> None:
    demo = start(tmp_path)
    assert demo.stderr is not None
    assert "starting local mode" in demo.stderr.readline()
    time.sleep(after_s)
    demo.send_signal(signal.SIGTERM)
    out, err = demo.communicate(timeout=90)
    assert demo.returncode == 1
    assert "demo: ok" not in out
    assert "stopped by SIGTERM" in err
    assert "the logs are in" in err
    assert left_behind(tmp_path) == []
