"""Bugs planted in the source itself, each with the tests that must catch it: `make mutants`.

For what the simulation has only a stand-in of: the services' own code. The source is copied, one
line of the copy is changed, and the named tests are run on it; they must pass without the bug and
fail with it. A bug whose line is not there any more is said, and has to be planted anew.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
COPIED = ("libs", "proto", "services", "tests", "deploy", "pyproject.toml")
PYTHONPATH = ("libs", "proto", "services", ".")
WITHIN_S = 300.0
"""A test that hangs on a bug has caught it as well."""


class Planted(NamedTuple):
    """`line` occurs once in the file at `path`; `bug` takes its place."""

    name: str
    path: str
    line: str
    bug: str
    tests: tuple[str, ...]


BINDINGS = "services/allotment_binder/bindings.py"
BINDING_TESTS = ("tests/contract/test_binder_bindings.py",)
PLANTED = (
    Planted(
        "a node's new fact forgets its quarantine",
        "libs/allotment/core/ledger/model.py",
        "        blocked = self.blocked\n",
        "        blocked = None\n",
        ("tests/unit/test_quarantine.py",),
    ),
    Planted(
        "the controller deletes a pod by its name alone",
        "services/allotment_controller/writes.py",
        "await client.delete(path, pod.uid)",
        "await client.delete(path)",
        (
            "tests/contract/test_controller_jobs.py::"
            "test_a_pod_made_anew_under_the_name_of_one_that_is_to_end_stays",
        ),
    ),
    Planted(
        "a lease never runs out by its holder's own clock",
        "libs/allotment/adapters/log/lease.py",
        "return time.monotonic() < self._held_until",
        "return self._held_until > 0.0",
        (
            "tests/contract/test_lease.py::"
            "test_a_holder_that_was_frozen_knows_by_its_own_clock_before_it_hears_anything",
        ),
    ),
    Planted(
        "the binder takes an obstacle for an ending in doubt",
        BINDINGS,
        "if obstacle is not None and (not in_doubt or not is_reserved()):",
        "if obstacle is not None:",
        BINDING_TESTS,
    ),
    Planted(
        "the binder takes a refusal for an ending in doubt",
        BINDINGS,
        "    if in_doubt:\n        return None\n",
        "",
        BINDING_TESTS,
    ),
    Planted(
        "the binder takes an edited mark for somebody else's Binding in doubt",
        BINDINGS,
        "(in_doubt or seq == str(allocation.seq))",
        "seq == str(allocation.seq)",
        BINDING_TESTS,
    ),
    Planted(
        "the watcher counts claims beyond the limits",
        "services/allotment_watcher/normalise/devices.py",
        "counted = claims.within_limits(claimed, mine)",
        "counted = claimed",
        ("tests/unit/test_claims.py",),
    ),
    Planted(
        "the watcher counts any number of cards where limits are unreadable",
        "services/allotment_watcher/normalise/devices.py",
        "counted = _as_many(claimed, most)",
        "counted = claimed",
        ("tests/unit/test_claims.py",),
    ),
)


def fits(planted: Planted, root: Path = ROOT) -> bool:
    """Whether the line is where it was when the bug was written down."""
    return (root / planted.path).read_text(encoding="utf-8").count(planted.line) == 1


def hunt(say: Callable[[str], None] = print) -> int:
    """Plant every bug and run its tests; how many went not as expected."""
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="planted-") as directory:
        copy = Path(directory)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, copy / name)
            else:
                shutil.copy2(source, copy / name)
        tests = tuple(dict.fromkeys(test for planted in PLANTED for test in planted.tests))
        if _fail(copy, tests):
            say("the tests fail without any bug: see to that first")
            return 1
        for planted in PLANTED:
            verdict = _verdict(copy, planted)
            say(f"{planted.name:<76} {verdict}")
            wrong += verdict != "caught"
    say(f"{len(PLANTED)} bugs planted in the source, {wrong} not as expected")
    return wrong


def _verdict(copy: Path, planted: Planted) -> str:
    if not fits(planted, copy):
        return f"cannot be planted: its line is not in {planted.path} once"
    path = copy / planted.path
    right = path.read_text(encoding="utf-8")
    path.write_text(right.replace(planted.line, planted.bug), encoding="utf-8")
    try:
        return "caught" if _fail(copy, planted.tests) else "not caught"
    finally:
        path.write_text(right, encoding="utf-8")


def _fail(copy: Path, tests: tuple[str, ...]) -> bool:
    """Whether one of these tests fails on the copy. Nothing that they start outlives this."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(copy / p) for p in PYTHONPATH)}
    options = ("-x", "-q", "--no-header", "-p", "no:cacheprovider")
    running = subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=copy,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return running.wait(WITHIN_S) != 0
    except subprocess.TimeoutExpired:
        return True
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
