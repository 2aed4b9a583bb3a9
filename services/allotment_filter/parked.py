"""Pods and groups that would get the same answer again: skipped, class by class.

In a full cluster thousands wait, and whenever a pod ends room has appeared somewhere. Mostly it is
room for none of them. A class of pods that ask the same is asked about once, instead of each of
them in a cycle: while it fits nowhere for the reasons that its pods got, or its queue refuses
it as before, they stay parked.

Where a class fits that did not, no more of it are worth a try than there is room for: the first of
them take it, and those behind would be refused. That nodes take a pod is not all, though; its queue
may have nothing left. So where none of those that were tried got a place, the next try is for more.
And where one node has room, as after one pod's end, the first in the order of all queues is tried
alone: mostly it takes the room, and all others need no try. If room is left, they are tried then.

Only pods are parked whose answer follows from each node for itself, or from their queue. With rules
about other pods, or of others about them, and with volumes, a change there may matter here. Of
groups those are parked whose pods all wait and ask the same, and of whom not even one fits. And
nodes must be all that is asked: where plugins choose nodes for pods, by node groups or by the names
of cards, or some are held for a gang, pods that ask the same do not wait for the same. Where the
policy evicts, those are not parked for whom others might go.
"""

from collections.abc import Callable, Hashable, Iterable
from enum import Enum
from typing import NamedTuple

from allotment.core.ledger.model import SINGLE, Pod
from allotment.core.placement.cycle import BATCH_MAX, same_refusal
from allotment.core.placement.evaluator import Ranker
from allotment.core.placement.rules.interpod import situated
from allotment.core.queues.round.rounds import Rounds
from allotment.core.queues.session import Session
from allotment_filter.feasibility import Feasibility, FeasibilityCache
from allotment_filter.lines import Lines
from allotment_proto.events import PodObserved, Refusal
from allotment_proto.facts import ALONE, PodRequest

CLASSES_MAX = 1_024
"""Each is asked about whenever room appears, and nodes once for all that ask them for the same.
Where pods ask for more different things in more queues than these, asking costs as much as trying.
"""
MORE_TIMES = 4
_ONE_BY_ONE = frozenset(("sla", "capacity-card"))
"""Plugins that go by more of a pod than its request: when it came, and which card it names."""


class _Lone(NamedTuple):
    """A class of lone pods that nodes or their queue refused."""

    queue: str
    request: PodRequest
    scope: str
    """For whom nodes are held back, if nodes refused them; see `ClusterState.scope_of`."""
    priority_class: str = ""
    """What their queue checks in addition to the request, if the queue refused them."""
    code: str = ""
    """Why their queue refused them; empty: nodes did."""
    priority: int = 0
    """What decides, where the policy evicts, whether others might go for them."""


class _Gang(NamedTuple):
    """A class of groups that nodes refused."""

    queue: str
    request: PodRequest
    needed: int
    pods: int
    scope: str
    priority: int


Class = _Lone | _Gang
"""What those have in common that are refused together."""
_Asked = tuple[PodRequest, str]
"""What nodes are asked for a class: the request of its pods, and their scope."""


class Worth(Enum):
    """What a job is worth that is due and not to be parked."""

    A_TRY = "a try"
    LATER = "later"
    """This batch has as many of its class as there is room for, and it cannot be parked with them:
    it got another answer."""


class Parked:
    """The classes of one state that are parked, and how many of others are worth a try.

    Pods and groups stand in the lines, parked under their class.
    """

    def __init__(self, lines: Lines, rounds: Rounds, ranker: Callable[[], Ranker | None]) -> None:
        """`ranker` makes one that asks the nodes of the state, None as long as it cannot. It is
        made when it is needed: that is once a pod waits that nodes refused.
        """
        self.state = rounds.state
        self.asked = 0
        """How often a class was asked about: the work done, for tests."""
        self._lines = lines
        self._rounds = rounds
        self._make_ranker = ranker
        self._made: FeasibilityCache | None = None
        self._told: dict[Class, Refusal] = {}
        """By class, the answer that its parked pods got."""
        self._checked: dict[str, Hashable] = {}
        """By queue, what decided when its classes were checked last (`_deciding`)."""
        self._rooms: dict[_Asked, int] = {}
        """For how many pods there is room in this batch."""
        self._fitting: set[Class] = set()
        """The classes that fit somewhere now: of those who are parked as many are put back as there
        is room for."""
        self._woken_seq = -1
        self._left: dict[tuple[Class, str], int] = {}
        """How many more of a class this batch may have; of each namespace if these take turns."""
        self._offered: dict[Class, dict[str, str]] = {}
        """Those that it has: jobs, each with its first pod."""
        self._refused: dict[str, Class] = {}
        """Jobs that a batch had and that got no place, until all are asked about again."""
        self._evicting: dict[tuple[str, int, PodRequest], bool] = {}
        """Whether any might be evicted for pods that are alike, in this batch."""
        self._times: dict[Class, int] = {}
        """Of classes without a placed pod: how many times the room is tried."""

    def wake(self, session: Session, woken_seq: int, batch_max: int) -> None:
        """A new batch is chosen: put those back that may get a place now, or need another answer.
        All are asked about when `woken_seq` is another one than before: each class is checked
        again if anything changed for its queue, and nodes are asked once for all that ask the same.
        """
        self._left.clear()
        self._offered.clear()
        self._evicting.clear()
        self._rooms.clear()
        if len(self._told) >= CLASSES_MAX:
            for under in [each for each in self._told if self._lines.first_parked(each) is None]:
                self._give_up(under)
        is_anew, self._woken_seq = self._woken_seq != woken_seq, woken_seq
        if is_anew:
            self._park_again(session)
        deciding = self._deciding(session)
        unmoved = {name for name, key in deciding.items() if key == self._checked.get(name)}
        before, self._fitting = self._fitting, set()
        woken = self._told if is_anew else {under: self._told[under] for under in before}
        answers: dict[_Asked, tuple[PodObserved, Feasibility | None]] = {}
        fitting: dict[Class, int] = {}
        most_nodes = 0
        for under, told in list(woken.items()):
            asked, is_moved = (under.request, under.scope), under.queue not in unmoved
            if is_moved or told.problem is not None or asked not in answers:
                pod = self._first_in(under, session, is_moved=is_moved)
                if pod is None:
                    self._give_up(under)
                    continue
                if told.problem is not None:
                    if not self._refuses(session, pod, told):
                        self._give_up(under)
                    continue
                if asked not in answers:
                    self.asked += 1
                    answers[asked] = pod.fact, self._fit(pod.fact)
            fact, found = answers[asked]
            room = 0
            if found is not None and found.feasible:
                room = self._room_for(under, fact, batch_max)
                most_nodes = max(most_nodes, found.feasible)
            if room:
                fitting[under] = room
                continue
            if found is not None and not found.feasible:
                self._times.pop(under, None)
                if same_refusal(told, found.refusal):
                    continue
            self._give_up(under)
        self._checked = deciding if is_anew else {name: deciding[name] for name in unmoved}
        self._fitting.update(fitting)
        is_new_room = is_anew and most_nodes == 1 and before.isdisjoint(fitting)
        if is_new_room and not self._lines.is_any_due(()):
            # One node has room, mostly for one pod: of the first in order it is certain that it
            # gets a place. If any is left, the next batch has all that may take it.
            first = self._first_of_all(fitting, session)
            if first is not None:
                self._lines.put_one_back(first)
                if self._lines.is_any_due(()):
                    return
        for under, room in fitting.items():
            self._lines.put_back(under, room)

    def _park_again(self, session: Session) -> None:
        """Park those that were refused, before their classes are asked about."""
        found: dict[Class, list[str]] = {}
        for job, under in self._refused.items():
            if under not in self._told and len(self._told) >= CLASSES_MAX:
                continue
            pod = self._first_of(job, session) if self._lines.has(job) else None
            if pod is None or pod.refusal is None:
                continue
            told = self._told.get(under, pod.refusal)
            if same_refusal(pod.refusal, told) and self._class_of(job, pod, session) == under:
                self._told[under] = told
                found.setdefault(under, []).append(job)
        for under, jobs in found.items():
            self._lines.park(jobs, under)
        self._refused.clear()

    def _deciding(self, session: Session) -> dict[str, Hashable]:
        """By queue, what decides besides the parked themselves under which class they are parked:
        as long as it is equal, none has to be looked at.
        """
        state, queues = self.state, session.world.queues
        for_all = (
            session.world,
            state.policy_seq,
            state.holds,
            tuple(state.nominated),
            state.is_scoped,
            state.memo.rules_about,
        )
        names = {under.queue for under in self._told}
        return {name: (for_all, session.taking_key(name)) for name in names if name in queues}

    def _first_in(self, under: Class, session: Session, *, is_moved: bool) -> Pod | None:
        """A pod of a class; None if there is none, or if it `is_moved` and is in another class."""
        job = self._lines.first_parked(under)
        pod = None if job is None else self._first_of(job, session)
        if job is None or (
            is_moved and pod is not None and self._class_of(job, pod, session) != under
        ):
            return None
        return pod

    def _first_of_all(self, fitting: Iterable[Class], session: Session) -> str | None:
        """The job that a round would try before all others of these classes."""
        by_queue: dict[str, list[Class]] = {}
        for under in fitting:
            by_queue.setdefault(under.queue, []).append(under)
        for name in sorted(by_queue, key=session.queue_key):
            firsts = (uid for under in by_queue[name] for uid in self._lines.firsts_parked(under))
            jobs = session.in_job_order(session.jobs[uid] for uid in firsts)
            if jobs:
                return jobs[0].uid
        return None

    def worth(self, job: str, session: Session, batch_max: int) -> Class | Worth:
        """What a job is worth that is due: the class under which it is to be parked, if it is worth
        nothing. Asked once for each in a batch, in the order in which they are to be tried.
        """
        pod = self._first_of(job, session)
        if pod is None or pod.refusal is None:
            return Worth.A_TRY
        under, refusal = self._class_of(job, pod, session), pod.refusal
        if under is None:
            return Worth.A_TRY
        told = self._told.get(under)
        if told is not None and under not in self._fitting:
            return under if same_refusal(refusal, told) else Worth.A_TRY
        if told is None and len(self._told) >= CLASSES_MAX:
            return Worth.A_TRY
        if refusal.problem is not None:
            if not self._refuses(session, pod, refusal):
                return Worth.A_TRY
        else:
            self.asked += told is None
            found = self._fit(pod.fact)
            if found is None:
                return Worth.A_TRY
            if found.feasible:
                return self._in_turn(job, under, pod, batch_max)
            self._times.pop(under, None)
            if not same_refusal(refusal, found.refusal):
                return Worth.A_TRY  # it needs another answer
        self._told[under] = refusal
        return under

    def tried(self) -> None:
        """The batch's cycle came to an end, as the state shows."""
        for under, jobs in self._offered.items():
            refused = [job for job, uid in jobs.items() if uid in self.state.pending]
            if len(refused) == len(jobs):
                self._times[under] = min(MORE_TIMES * self._times.get(under, 1), BATCH_MAX)
            else:
                self._times.pop(under, None)
            self._refused.update(dict.fromkeys(refused, under))
        self._offered.clear()
        if len(self._times) > CLASSES_MAX:
            self._times.clear()

    def follow(self) -> None:
        """Check what changed on nodes while the filter is idle, if any pod is parked."""
        if self._made is not None and self._told:
            self._made.follow()

    @property
    def asks_nodes(self) -> bool:
        """Whether any were ever asked."""
        return self._made is not None

    def close(self) -> None:
        """The state may change from here on."""
        if self._made is not None:
            self._made.close()

    def _first_of(self, job: str, session: Session) -> Pod | None:
        """The pod that stands for a job: of a group the first, if all of its pods wait."""
        if job.startswith(SINGLE):
            return self.state.pods[job.removeprefix(SINGLE)]
        waiting = session.all_waiting(job)
        return None if waiting is None else self.state.pods[waiting[1][0]]

    def _class_of(self, job: str, pod: Pod, session: Session) -> Class | None:
        """Under what a job can be parked whose first pod was refused; None if it cannot be."""
        fact, refusal = pod.fact, pod.refusal
        if refusal is None or fact.problem is not None or self._might_evict(job, fact, session):
            return None
        view = session.jobs[job].view
        priority = view.priority if self._rounds.may_evict else 0
        if refusal.problem is not None:
            is_alike = job.startswith(SINGLE) and _ONE_BY_ONE.isdisjoint(session.plugin_names)
            code = refusal.problem.code
            alike = _Lone(view.queue, fact.request, "", fact.priority_class, code, priority)
            return alike if is_alike else None
        if not self._is_by_itself(fact) or self.state.holds or session.chooses_nodes(job):
            return None
        if job.startswith(SINGLE):
            return _Lone(view.queue, fact.request, self.state.scope_of(fact), priority=priority)
        return self._gang_of(job, session, priority)

    def _might_evict(self, job: str, fact: PodObserved, session: Session) -> bool:
        """Whether pods might be evicted for a job, or are. The same for lone pods that ask the same
        with one priority in one queue.
        """
        if job in self.state.nominated:
            return True
        if not job.startswith(SINGLE):
            return self._rounds.might_evict(session, job)
        view = session.jobs[job].view
        alike = view.queue, view.priority, fact.request
        found = self._evicting.get(alike)
        if found is None:
            found = self._evicting[alike] = self._rounds.might_evict(session, job)
        return found

    def _gang_of(self, job: str, session: Session, priority: int) -> _Gang | None:
        """What a group has in common with others that are parked with it: its pods ask the same,
        and when it was tried last not even one of them fitted.
        """
        state, waiting = self.state, session.all_waiting(job)
        short = state.groups[job].short
        if waiting is None or short is None or short.together or short.queue:
            return None
        needed, uids = waiting
        facts = [state.pods[uid].fact for uid in uids]
        request = facts[0].request
        if any(f.request != request or not self._is_by_itself(f) for f in facts):
            return None
        queue, scope = session.jobs[job].queue, state.scope_of(facts[0])
        return _Gang(queue, request, needed, len(facts), scope, priority)

    def _is_by_itself(self, fact: PodObserved) -> bool:
        """Whether each node's answer follows from that node alone: it has no rules about others nor
        volumes, and no pod has to keep away from it.
        """
        return (
            fact.problem is None
            and fact.request.company == ALONE
            and not fact.request.attachments
            and not fact.local_claims
            and not situated(fact, self.state).company.repelled
        )

    def _refuses(self, session: Session, pod: Pod, told: Refusal) -> bool:
        """Whether its queue still refuses pods of a kind for the recorded reason."""
        self.asked += 1
        no, problem = session.refuses(SINGLE + pod.fact.uid), told.problem
        return (
            no is not None
            and problem is not None
            and problem.code == no.code
            and problem.message == no.message.removeprefix(f"{problem.place} ")
        )

    def _in_turn(self, job: str, under: Class, pod: Pod, batch_max: int) -> Class | Worth:
        """One whose class fits on some node: whether those before it left room for it."""
        fact, refusal = pod.fact, pod.refusal
        assert refusal is not None
        part = under, "" if self.state.turns is None else fact.namespace
        left = self._left.get(part)
        if left is None:
            left = self._room_for(under, fact, batch_max)
            if left < 1:
                return Worth.A_TRY  # some of a group fit, and it needs that answer
        if left > 0:
            self._left[part] = left - 1
            self._offered.setdefault(under, {})[job] = fact.uid
            return Worth.A_TRY
        self._fitting.add(under)
        is_told_so = same_refusal(refusal, self._told.setdefault(under, refusal))
        return under if is_told_so else Worth.LATER

    def _fit(self, fact: PodObserved) -> Feasibility | None:
        """Where a pod's class fits; None while nodes cannot be asked."""
        if self._made is None:
            ranker = self._make_ranker()
            if ranker is None:
                return None
            self._made = FeasibilityCache(self.state, ranker)
        return self._made.of(fact)

    def _room_for(self, under: Class, fact: PodObserved, batch_max: int) -> int:
        """How many of a class that fits somewhere are worth a try; 0 if no group of it gets all
        that it needs.
        """
        assert self._made is not None
        asked = under.request, under.scope
        room = self._rooms.get(asked)
        if room is None:
            room = self._rooms[asked] = self._made.room(fact, batch_max)
        if isinstance(under, _Gang):
            room //= under.needed
        return min(room * self._times.get(under, 1), batch_max)

    def _give_up(self, under: Class) -> None:
        """The class has no parked pods left."""
        self._told.pop(under, None)
        self._fitting.discard(under)
        self._lines.put_back(under)
