"""The world that a scenario is played in: a log, and what services append to it.

Each round is decided four times and must come out the same: by the rules and by the board, by a
scorer that followed the log and by one that began with a snapshot. After each step the books are
checked, and at the end every decision is made again from the log.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import msgspec
from click.testing import CliRunner

from allotment.core.config.policy import parse
from allotment.core.explain.causes.why import Whys
from allotment.core.explain.rows.pod_views import pod_status
from allotment.core.ledger import snapshot
from allotment.core.ledger.check import check
from allotment.core.ledger.model import Group
from allotment.core.placement.cycle import Outcome
from allotment.core.placement.evaluator import Evaluator
from allotment.core.queues.model import Phase
from allotment.core.queues.phases import UNSCHEDULABLE
from allotment.core.queues.round.members import job_of
from allotment.core.queues.round.rounds import Rounds
from allotment.core.reasons import refusal_text
from allotment_binder.causes import told
from allotment_binder.gang_notices import waits_because
from allotment_binder.group_status import closing_of, quota_of
from allotment_binder.notices import Refused
from allotment_binder.readers import Readers
from allotment_board.board import Board
from allotment_cli.main import main
from allotment_filter.groups import Groups
from allotment_proto import subjects
from allotment_proto.decided import Decided, Evicted
from allotment_proto.events import (
    Event,
    GroupGone,
    NodeGone,
    PolicyLoaded,
    QueueGone,
    TimePassed,
)
from allotment_watcher.normalise import Lens
from tests.recording_batch import BatchRecorder
from tests.replaying import assert_replays
from tests.scenarios import objects
from tests.scenarios.schema import VICTIMS, Scenario, Step, names_in

CYCLES_MOST = 200


def play(scenario: Scenario, directory: Path) -> None:
    """Play a scenario. Raises AssertionError, with file and line, where it comes out otherwise."""
    scene = Scene(directory)
    for step in scenario.steps:
        scene.play(step)
    assert_replays(scene.records)


class Scene(BatchRecorder):
    """See the module."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory
        self._given: dict[tuple[str, str], dict[str, Any]] = {}
        """By kind and name, what an object says: what is applied again changes it."""
        self._board, self._rounds = Board(self.state), Rounds(self.state)
        self._groups = Groups(self.state)
        self._place = ""
        self._decided: Decided | None = None
        self.apply({"queues": {"default": {}}})

    def play(self, step: Step) -> None:
        self._place = step.place
        getattr(self, step.verb)(step.value)
        assert check(self.state) == [], step.place
        encoded = snapshot.encode(self.state)
        assert snapshot.encode(snapshot.decode(encoded)) == encoded, step.place

    def _fail(self, what: str) -> NoReturn:
        raise AssertionError(f"{self._place}: {what}")

    # Objects

    def configure(self, configuration: Any) -> None:
        found = parse(objects.conf_text(configuration), "scenario", objects.NAMES_OF_SCHEDULERS)
        loaded = PolicyLoaded(policy=found.policy, source="scenario", text_sha256="")
        self.append(subjects.CONFIG, "watcher/0", loaded)

    def apply(self, kinds: Mapping[str, Mapping[str, dict[str, Any]]]) -> None:
        """Make objects, or change the fields that are named of some that are there."""
        makers: dict[str, tuple[Callable[..., Event], Callable[[str], str]]] = {
            "nodes": (objects.node, subjects.node),
            "queues": (objects.queue, subjects.queue),
            "classes": (objects.priority_class, subjects.priority_class),
        }
        for kind in ("nodes", "queues", "classes", "groups", "pods"):
            for name, fields in kinds.get(kind, {}).items():
                given = self._given[kind, name] = {**self._given.get((kind, name), {}), **fields}
                if kind == "groups":
                    self._apply_group(name, given)
                elif kind == "pods":
                    self._apply_pod(name, given)
                else:
                    make, subject = makers[kind]
                    self.append(subject(name), "watcher/0", make(name, given, self._next_rv()))

    def _next_rv(self) -> int:
        self._rv = max(self._rv, self.seq) + 1
        return self._rv

    def _apply_group(self, name: str, given: dict[str, Any]) -> None:
        fact = objects.group(name, given, self._next_rv())
        known = self.state.groups.get(f"{fact.namespace}/{name}")
        was = None if known is None else known.fact
        created_ms = self.now_ms if was is None else was.created_ms
        fact = msgspec.structs.replace(fact, created_ms=created_ms)
        self.append(subjects.group(fact.namespace, name), "watcher/0", fact)
        like = {"group": name, "role": "w", "class": given.get("class", "")}
        for number in range(given.get("pods", 0)):
            pod = f"{name}-{number}"
            if pod not in self.state.pods:
                self.apply({"pods": {pod: {**like, **given.get("each", {})}}})

    def _apply_pod(self, name: str, given: dict[str, Any]) -> None:
        known, fields = self.state.pods.get(name), given
        found = self.state.classes.get(given.get("class", ""))
        if "priority" not in given and found is not None:
            fields = {"priority": found.value, "never_preempts": not found.preempts, **given}
        lens = Lens(self.state.policy, self.state.devices)
        fact = objects.pod(name, fields, self._next_rv(), lens, self.state.devices)
        if known is None:
            fact = msgspec.structs.replace(fact, created_ms=self.now_ms)
        else:
            was = known.fact
            kept = {k: getattr(was, k) for k in ("created_ms", "node", "holdings", "phase")}
            fact = msgspec.structs.replace(fact, **kept)
        self.append(subjects.pod(name), "watcher/0", fact)

    def remove(self, kinds: Mapping[str, str]) -> None:
        """Objects are deleted at once."""
        for kind, names in kinds.items():
            for name in names_in(names):
                self._given.pop((kind, name), None)
                rv = self._next_rv()
                if kind == "nodes":
                    gone: Event = NodeGone(name=name, uid=name, rv=rv)
                    self.append(subjects.node(name), "watcher/0", gone)
                elif kind == "queues":
                    gone = QueueGone(uid=name, name=name, rv=rv)
                    self.append(subjects.queue(name), "watcher/0", gone)
                elif kind == "groups":
                    gone = GroupGone(uid=name, namespace="default", name=name, rv=rv)
                    self.append(subjects.group("default", name), "watcher/0", gone)
                else:
                    self.gone(name)

    # Decisions

    def propose(self, batch: tuple[str, ...]) -> Outcome:
        found = self._rounds.run(batch, self._board)
        assert Rounds(self.state).run(batch, Evaluator(self.state)) == found, self._place
        again = snapshot.decode(snapshot.encode(self.state))
        assert Rounds(again).run(batch, Board(again)) == found, self._place
        return found

    def round(self, *names: str | None) -> int:
        """A round over the pods that are named, or over all that wait."""
        chosen = [one for name in names if name for one in self._pods(name)]
        before = self.seq
        seq = super().round(*chosen)
        assert seq == before + 1
        return seq

    def append(self, subject: str, by: str, *events: Event) -> int:
        for event in events:
            if isinstance(event, Decided):
                self._decided = event
        return super().append(subject, by, *events)

    def rounds(self, count: int) -> None:
        for _ in range(count):
            self.round()

    def settle(self, _: None) -> None:
        """Rounds as the filter issues them, until none is due."""
        for _cycle in range(CYCLES_MOST):
            found = self._groups.next_batch(())
            if found is None:
                return
            self.round_over(tuple(found.batch.uids))
            self._groups.tried(found)
        self._fail("somebody is due for ever")

    def _group(self, name: str) -> Group:
        """A group by its name, in whatever namespace."""
        found = [one for key, one in self.state.groups.items() if key.endswith(f"/{name}")]
        if not found:
            self._fail(f"there is no group {name}")
        return found[0]

    # What becomes of pods

    def _pods(self, names: str) -> list[str]:
        found = []
        for name in names_in(names):
            if name != VICTIMS and name not in self.state.pods:
                self._fail(f"there is no pod {name}")
            found += list(self.state.evicting) if name == VICTIMS else [name]
        return found

    def run(self, names: str | None) -> None:
        """The Bindings of pods that have a place are accepted, and they are seen running."""
        for uid in list(self.state.reserved) if names is None else self._pods(names):
            if self.state.pods[uid].allocation is None:
                self._fail(f"pod {uid} has no place to run on")
            self.bind(uid)

    def start(self, names: str | None) -> None:
        """A round, and all that have a place then run: the pods that are named are among them."""
        self.round()
        if names is not None:
            self.run(names)
        self.run(None)

    def fail(self, names: str) -> None:
        """The Bindings of pods are refused."""
        for uid in self._pods(names):
            self.bind_failed(uid, "refused")

    def end(self, names: str) -> None:
        for uid in self._pods(names):
            self.observe(uid, phase="Succeeded")

    def delete(self, names: str | Mapping[str, int]) -> None:
        """Pods are being deleted; they may take so many seconds to end."""
        graces = {names: 30} if isinstance(names, str) else names
        for some, grace_s in graces.items():
            for uid in self._pods(some):
                deadline = {"deadline_ms": max(self.state.time_ms, 1) + grace_s * 1000}
                grace = grace_s if grace_s > 60 else 0
                self.observe(uid, deleting=True, grace_s=grace, **deadline)

    def gone(self, names: str) -> int:
        """Pods are gone, evicted ones after the API server accepted that."""
        for uid in self._pods(names):
            if uid in self.state.evicting:
                self._evicted(uid, "")
            super().gone(uid)
        return self.seq

    def evict(self, refused: str | None) -> None:
        """The API server accepts the evictions that were asked for, or refuses them with a code."""
        for uid in list(self.state.evicting):
            self._evicted(uid, refused or "")
            if not refused:
                self.delete(uid)

    def _evicted(self, uid: str, code: str) -> None:
        asked = self.state.evicting[uid]
        event = Evicted(
            uid=uid,
            namespace="default",
            name=asked.name,
            node=asked.node,
            decision=self.state.decision_seq,
            code=code,
        )
        self.append(subjects.OUTCOME, "binder/0", event)

    def advance(self, seconds: int) -> None:
        """Time passes, as the watcher reports it."""
        self.now_ms += seconds * 1000
        self.append(subjects.CONFIG, "watcher/0", TimePassed(at_ms=self.now_ms))

    # Expectations

    def expect(self, expected: Mapping[str, Any]) -> None:
        for what, value in expected.items():
            getattr(self, f"_expect_{what}")(value)

    def _exactly(self, what: str, expected: Any, found: Mapping[str, str]) -> None:
        """`expected`: a text for each, the names, or how many there are."""
        if isinstance(expected, dict):
            wanted: object = {n: text for names, text in expected.items() for n in names_in(names)}
            self._same(what, wanted, dict(found))
        elif isinstance(expected, int):
            self._same(what, expected, len(found), f" ({' '.join(found)})")
        else:
            self._same(what, set(names_in(expected or "")), set(found))

    def _same(self, what: str, expected: object, found: object, more: str = "") -> None:
        if expected != found:
            self._fail(f"{what}: expected {_shown(expected)}, found {_shown(found)}{more}")

    def _expect_placed(self, expected: Any) -> None:
        pods = self.state.pods.items()
        held = {uid: pod.allocation.node for uid, pod in pods if pod.allocation is not None}
        self._exactly("placed", expected, held)

    def _last(self) -> Decided:
        if self._decided is None:
            self._fail("there was no round yet")
        return self._decided

    def _expect_evicts(self, expected: Any) -> None:
        found = {one.uid: f"{one.action} for {one.preemptor}" for one in self._last().evictions}
        self._exactly("evicts", expected, found)

    def _expect_leaving(self, expected: Any) -> None:
        self._exactly("leaving", expected, dict.fromkeys(self.state.evicting, ""))

    def _expect_nominated(self, expected: Any) -> None:
        places = [one.nodes for one in self.state.nominated.values()]
        self._exactly(
            "nominated", expected, {u: node for each in places for u, node in each.items()}
        )

    def _expect_together(self, expected: Any) -> None:
        wholes = {uid: "" for whole in self._last().wholes for uid in whole}
        self._exactly("together", expected, wholes)

    def _expect_told(self, expected: Any) -> None:
        """To whom the last round said something that it had not said before."""
        last = self._last()
        found = {one.uid: "" for one in last.refusals}
        said = [one.group for one in last.shorts]
        said += [one.group for one in last.admissions if one.code]
        found |= {group.partition("/")[2]: "" for group in said}
        self._exactly("told", expected, found)

    def _expect_waiting(self, expected: Mapping[str, str]) -> None:
        for names, code in expected.items():
            for uid in self._pods(names):
                found = pod_status(self.state, self.state.pods[uid])
                self._same(f"waiting {uid}", ("Pending", code), found)

    def _expect_admitted(self, expected: str | None) -> None:
        groups = self.state.groups.items()
        found = {key.partition("/")[2] for key, one in groups if one.admitted_seq}
        self._same("admitted", set(names_in(expected or "")), found)

    def _expect_gate(self, expected: Mapping[str, str]) -> None:
        for name, code in expected.items():
            gate = self._group(name).gate
            self._same(f"gate {name}", code, "none" if gate is None else gate.code)

    def _expect_held(self, expected: str | None) -> None:
        found = {one.group.partition("/")[2] for one in self.state.holds}
        self._same("held", set(names_in(expected or "")), found)

    def _expect_passed(self, expected: Mapping[str, int]) -> None:
        for name, count in expected.items():
            self._same(f"passed {name}", count, self._group(name).passed)

    def _expect_short(self, expected: Mapping[str, Any]) -> None:
        for name, words in expected.items():
            short = self._group(name).short
            text = "" if short is None else f"{short.code} {short.together}/{short.waiting} "
            self._contains(f"group {name}", words, text + ("" if short is None else short.message))

    def _expect_conditions(self, expected: Mapping[str, Any]) -> None:
        """The text of the condition Unschedulable of PodGroups."""
        for name, words in expected.items():
            found = self._group(name)
            if found.fact is None:
                self._fail(f"there is no PodGroup {name}")
            key = f"{found.fact.namespace}/{name}"
            view = job_of(self.state, key, found, found.fact)
            before = Phase.PENDING if found.fact.phase == "Pending" else Phase.INQUEUE
            condition = closing_of(found, view, before, quota_of(self.state, found)).condition
            if condition is None or condition.type != UNSCHEDULABLE:
                self._fail(f"group {name} has no condition {UNSCHEDULABLE}: {condition}")
            self._contains(f"the condition of {name}", words, condition.message)

    def _expect_events(self, expected: Mapping[str, Any]) -> None:
        """The text of the condition and the Event of pods."""
        for names, words in expected.items():
            for uid in self._pods(names):
                pod = self.state.pods[uid]
                fact = pod.fact
                if pod.refusal is not None:
                    said = refusal_text(pod.refusal)
                else:
                    said = waits_because(self.state.groups[fact.group])
                notice = Refused(uid, fact.namespace, fact.name, said, is_news=True)
                text = told(self.state, Whys(self.state), notice, Readers())
                command = f"Ask: allot explain pod {fact.namespace}/{fact.name}"
                assert text.endswith(command), text
                assert "\n" not in text
                self._contains(f"the Event of {uid}", words, text)

    def _expect_shows(self, expected: Mapping[str, Any]) -> None:
        for command, words in expected.items():
            self._contains(f"allot {command}", words, self._screen(command))

    def _expect_hides(self, expected: Mapping[str, Any]) -> None:
        for command, words in expected.items():
            screen = self._screen(command)
            for word in _list(words):
                if word in screen:
                    self._fail(f"allot {command} shows {word!r}:\n{screen}")

    def _screen(self, command: str) -> str:
        path = self.write(self._directory / "log.jsonl")
        result = CliRunner().invoke(main, [*command.split(), "--file", str(path)])
        if result.exit_code:
            self._fail(f"allot {command} fails: {result.output}")
        return result.stdout

    def _contains(self, what: str, words: Any, text: str) -> None:
        for word in _list(words):
            if word not in text:
                self._fail(f"{what} does not say {word!r}:\n{text}")


def _list(words: Any) -> Iterable[str]:
    return [words] if isinstance(words, str) else words


def _shown(value: object) -> str:
    if isinstance(value, set):
        return " ".join(sorted(value)) or "none"
    return str(value)
