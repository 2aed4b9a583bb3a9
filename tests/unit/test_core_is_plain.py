"""The core and the wire need neither NumPy nor numba: the extra `allotment[fast]` brings these."""

import subprocess
import sys

WALK = """
import sys
from importlib import import_module
from pathlib import Path

walked = []
for name in ("allotment_proto", "allotment.core"):
    [root] = map(Path, import_module(name).__path__)
    for path in root.rglob("*.py"):
        parts = path.relative_to(root).with_suffix("").parts
        if parts[-1] not in ("__init__", "__main__"):
            walked.append(import_module(".".join((name, *parts))))
assert len(walked) > 150, walked
print(*sorted({name.partition(".")[0] for name in sys.modules} & {"numpy", "numba"}))
"""
BLOCKED = """
import sys

sys.modules["numpy"] = sys.modules["numba"] = None
"""
DECIDES = """
from allotment.core.placement.cycle import run_cycle
from allotment_board import NodeRanker, is_for_board
from tests.build import node, pod, state_of

state = state_of(*[node(f"n{n:03}") for n in range(100)], pod("a"))
assert not is_for_board(state)
print(run_cycle(state, ["a"], NodeRanker(state)).placements[0].node)
"""


COMMAND = """
from allotment_cli.main import main

main(["simulate", "--nodes", "x"])
"""


def output_of(script: str) -> str:
    command = [sys.executable, "-c", script]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_no_module_of_the_core_loads_numpy_or_numba() -> None:
    assert output_of(WALK) == ""


def test_services_import_neither_before_a_cluster_is_large() -> None:
    services = ("watcher", "filter", "scorer", "binder", "controller", "archiver", "inspector")
    imports = "".join(f"import allotment_{name}.__main__\n" for name in services)
    imports += (
        "import allotment_cli.demo.command, allotment_cli.read.replay, allotment_local.cluster\n"
    )
    assert output_of(imports + WALK) == ""


def test_a_command_that_needs_numpy_says_what_to_install() -> None:
    command = [sys.executable, "-c", BLOCKED + COMMAND]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "allot simulate needs numpy, which is not installed" in done.stderr
    assert "pip install 'allotment[fast]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_them_the_plain_rules_decide_on_large_clusters() -> None:
    assert output_of(BLOCKED + DECIDES) == "n000"
