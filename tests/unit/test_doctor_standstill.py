"""What the doctor concludes from two states, from pods that wait and from the log's stream."""

from collections.abc import Sequence

import pytest

from allotment.core.explain.doctor import ERROR, WARNING, Finding, findings
from allotment.core.explain.doctor.log import Copy, Limit, LogStream, as_run, of_leases, of_log
from allotment.core.explain.doctor.standstill import Work, of_standstill, work_of
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.logport import Setting
from allotment.core.placement import unserved
from allotment.core.queues.round import verdict
from allotment_proto.events import (
    Bound,
    CheckpointPart,
    Decided,
    Event,
    NodeGone,
    QueueObserved,
    Refusal,
    SegmentArchived,
    SegmentClosed,
    SegmentClosing,
)
from allotment_proto.facts import Problem
from tests import build
from tests.unit.rounds_world import group

NOW_MS = 100_000


def work(*events: Event) -> tuple[ClusterState, Work]:
    state = build.state_of(*events)
    return state, work_of(state, is_silent=True)


def concluded(earlier: Sequence[Event], later: Sequence[Event] = ()) -> list[Finding]:
    """What is found where the log was `earlier` half a minute ago, and has `later` too now."""
    _, before = work(*earlier)
    state, now = work(*earlier, *later)
    decided_ms = 40_000 if state.decision_seq else 0
    return of_standstill(state, before, now, NOW_MS, decided_ms, state.decision_seq)


def refused(uid: str, code: str, basis: int) -> Decided:
    refusal = Refusal(uid, "default", f"pod-{uid}", 1, ((code, 1),))
    return build.decided(batch=(uid,), refusals=(refusal,), basis=basis, checked=basis)


def bound(uid: str, decision: int) -> Bound:
    return Bound(uid=uid, namespace="default", name=f"pod-{uid}", node="n1", decision=decision)


def test_a_pod_that_fits_and_nobody_decides_about() -> None:
    (found,) = concluded([build.node("n1"), build.node("n2", 0), build.pod("a")])
    assert (found.severity, found.code) == (ERROR, "NothingDecided")
    assert (found.subject, found.pods) == ("pod default/pod-a", ("default/pod-a",))
    assert found.message == (
        "default/pod-a fits on 1 of 2 nodes, and no decision about it was made for 30s or more; it "
        "has waited for 1m39s; no decision was ever made"
    )
    assert found.since == "1970-01-01T00:00:01.000Z"


def test_a_pod_that_fits_nowhere_and_was_never_told() -> None:
    (found,) = concluded([build.node("n1", 0), build.pod("a")])
    assert found.code == "NothingDecided"
    assert "default/pod-a was never tried, and no decision" in found.message


def test_the_last_decision_is_named() -> None:
    decided = build.decided(build.placement("a", "n1"))
    log: list[Event] = [build.node("n1"), build.pod("a"), decided, bound("a", 3), build.pod("b")]
    (found,) = concluded(log)
    assert found.message.endswith("the last decision was 1m00s ago (seq 3)")


def test_what_waits_for_a_moment_only_is_no_standstill() -> None:
    assert concluded([build.node("n1")], [build.pod("a")]) == []
    small = build.node("n1", [build.card(0, memory_mib=1)])
    waits: list[Event] = [small, build.pod("a"), refused("a", "InsufficientGPUMemory", 2)]
    assert concluded(waits) == []
    assert concluded(waits, [build.node("n1", 2, rv=2)]) == []  # room came just now
    (found,) = concluded([*waits, build.node("n1", 2, rv=2)])
    assert found.code == "NothingDecided"


def test_a_pod_that_has_its_place_and_nobody_binds() -> None:
    decided = build.decided(build.placement("a", "n1"))
    log: list[Event] = [build.node("n1"), build.pod("a"), decided]
    (found,) = concluded(log)
    assert (found.severity, found.code, found.seq) == (ERROR, "NothingBound", 3)
    assert "has a reservation on n1 and was not bound for 30s" in found.message
    assert concluded(log, [bound("a", 3)]) == []
    assert concluded(log[:2], [decided]) == []


def test_a_quiet_cluster_is_not_asked_to_run_a_round() -> None:
    state = build.state_of(build.node("n1"), build.pod("a"))
    assert not work_of(state, is_silent=False)


def test_pods_that_cannot_start_are_counted_once_by_cause() -> None:
    typo = build.request(extended=(("volcano.sh/vgpu-numbre", 1),))
    problem = Problem("InvalidRequest", "container 'c'", "volcano.sh/vgpu-cores is 120; 0 to 100")
    closed = QueueObserved(uid="q2", name="night", rv=1, state="Closed")
    events: list[Event] = [
        QueueObserved(uid="q", name="default", rv=1),
        closed,
        build.node("n1"),
        *(build.pod(f"t{n}", typo) for n in range(5)),
        build.pod("x", problem=problem),
        build.pod("big", build.request(build.wants(64_000))),
        build.pod("cpu", build.request(cpu_milli=1_000_000)),
        build.pod("unknown", queue="nigth"),
        build.pod("closed", queue="night"),
        group("g", 1, queue="gone"),
        build.pod("grouped", group="default/g"),
        build.pod("lost", group="default/nobody"),
        build.pod("alotment", scheduler="alotment"),
        build.pod("other", scheduler="default-scheduler"),
        build.pod(
            "forgotten",
            build.request(),
            scheduler="default-scheduler",
            card_resources=("volcano.sh/vgpu-number",),
        ),
        build.pod("fine"),
    ]
    found = findings(build.state_of(*events), NOW_MS)
    said = {(one.code, one.message): one for one in found}
    assert len(said) == len(found) == 10
    by_pods = {one.pods: one for one in found}
    (typos,) = (one for one in found if one.pods_total == 5)
    assert typos.subject == "pods default/pod-t0, default/pod-t1, default/pod-t2 and 2 more"
    assert by_pods[("default/pod-big",)].message == (
        "InsufficientGPUMemory: 62.5 GiB of one GPU requested; the largest GPU that the pod "
        "accepts has 15.6 GiB; no node would fit the pod even if no other pod ran"
    )
    assert "1000 CPUs requested" in by_pods[("default/pod-cpu",)].message
    assert by_pods[("default/pod-unknown",)].message == (
        "queue nigth does not exist; did you mean night?"
    )
    assert by_pods[("default/pod-closed",)].code == "QueueClosed"
    assert by_pods[("default/pod-grouped",)].message == (
        "queue gone does not exist; there are default, night"
    )
    assert by_pods[("default/pod-lost",)].code == "GroupMissing"
    assert by_pods[("default/pod-alotment",)].message == (
        "schedulerName is alotment; this scheduler answers to allotment; did you mean allotment?"
    )
    assert by_pods[("default/pod-forgotten",)].message == (
        "schedulerName is default-scheduler; this scheduler answers to allotment; kube-scheduler "
        "assigns no card for volcano.sh/vgpu-number"
    )
    assert sum(one.never_start for one in found) == 14


def test_a_pod_may_be_seen_before_its_group() -> None:
    queue = QueueObserved(uid="q", name="default", rv=1)
    state = build.state_of(queue, build.node("n1"), build.pod("a", group="default/g"))
    assert findings(state, 3_000) == []
    (found,) = findings(state, NOW_MS)
    assert found.code == "GroupMissing"


@pytest.mark.parametrize("is_gone", [True, False])
def test_pods_on_a_node_that_is_gone_or_not_ready(is_gone: bool) -> None:
    runs = build.pod("a", node="n1", phase="Running", holdings=(build.holding(),))
    gone = NodeGone(name="n1", uid="uid-n1", rv=2)
    event = gone if is_gone else build.node("n1", rv=2, ready=False)
    (found,) = findings(build.state_of(build.node("n1"), runs, event), NOW_MS)
    wanted = (ERROR, "NodeGone") if is_gone else (WARNING, "NodeNotReady")
    assert (found.severity, found.code) == wanted
    assert found.message.endswith("with 1 pod on it: default/pod-a; they hold shares of 1 card"), (
        found.message
    )
    assert findings(build.state_of(build.node("n1"), event), NOW_MS) == []


def test_who_holds_an_unhealthy_card_is_said() -> None:
    runs = build.pod("a", node="n1", phase="Running", holdings=(build.holding(),))
    ill = build.node("n1", [build.card(0, healthy=False), build.card(1, healthy=False)])
    held, free = findings(build.state_of(ill, runs), NOW_MS)
    assert (
        held.message == "GPU-0: registered as unhealthy by its device plugin; held by default/pod-a"
    )
    assert free.message == "GPU-1: registered as unhealthy by its device plugin; the card is idle"


STREAM = LogStream("LOG", (), (), (), replicas=1, is_clustered=False)


def test_a_log_that_is_nearly_full_and_one_that_is() -> None:
    assert of_log(STREAM) == []
    day_ms = 86_400_000
    half = Limit("max_bytes", 5 << 30, 10 << 30)
    assert of_log(STREAM._replace(limits=(half, Limit("max_msgs", 10**9, -1)))) == []
    nearly = Limit("max_bytes", 8 << 30, 10 << 30)
    (found,) = of_log(STREAM._replace(limits=(nearly,), grown_ms=4 * day_ms))
    assert (found.severity, found.code) == (WARNING, "LogNearlyFull")
    assert found.message == (
        "80% of max_bytes is used: 8.0 GiB of 10.0 GiB; at the pace so far it is full in 1d00h; "
        "once it is full no record is appended, so no pod is scheduled"
    )
    (full,) = of_log(STREAM._replace(limits=(Limit("max_msgs", 990, 1_000),)))
    assert (full.severity, full.code) == (ERROR, "LogFull")
    assert full.message.startswith("99% of max_msgs is used: 990 records of 1,000 records;")


def test_the_storage_of_an_account_is_told_in_bytes() -> None:
    storage = Limit("the storage of NATS's account", 9 << 30, 10 << 30)
    (found,) = of_log(STREAM._replace(limits=(storage,)))
    assert found.message.startswith(
        "90% of the storage of NATS's account is used: 9.0 GiB of 10.0 GiB;"
    )


def test_a_certificate_that_expires_soon_and_one_that_has() -> None:
    day_s = 86_400
    assert of_log(STREAM._replace(certificate_left_s=31 * day_s)) == []
    (soon,) = of_log(STREAM._replace(certificate_left_s=12 * day_s))
    assert (soon.severity, soon.code) == (WARNING, "CertificateExpires")
    assert "expires in 12d" in soon.message
    (over,) = of_log(STREAM._replace(certificate_left_s=-2 * day_s))
    assert (over.severity, "expired 2d" in over.message) == (ERROR, True)


def test_services_of_which_no_replica_is_active() -> None:
    roles = ("watcher", "filter", "scorer", "binder")
    ours = ("allotment",)
    assert of_leases({role: f"{role}-1" for role in roles}, ours) == []
    (one,) = of_leases({**dict.fromkeys(roles, "x"), "scorer": ""}, ours)
    assert (one.severity, one.subject) == (ERROR, "service scorer")
    (all_of_them,) = of_leases(dict.fromkeys(roles, ""), ours)
    assert all_of_them.subject == "services watcher, filter, scorer, binder"
    assert "full disk" in all_of_them.message


def test_without_scheduler_names_the_watcher_alone_is_expected() -> None:
    none = dict.fromkeys(("watcher", "filter", "scorer", "binder"), "")
    assert of_leases({**none, "watcher": "watcher-1"}, ()) == []
    (one,) = of_leases(none, ())
    assert (one.subject, one.message) == (
        "service watcher",
        "no replica is active, so nothing is recorded",
    )


def test_services_in_one_process_need_no_replicas_of_their_own() -> None:
    roles = ("watcher", "filter", "scorer", "binder")
    none = dict.fromkeys((*roles, "controller"), "")
    assert as_run({**none, "scheduler": "s"}) == {"controller": "", "scheduler": "s"}
    assert as_run({**none, "scheduler": "s", "watcher": "w"}).keys() == {
        *("controller", "scheduler", "watcher")
    }
    assert as_run({**none, "scheduler": ""}) == none
    apart = {**dict.fromkeys(roles, "x"), "scorer": ""}
    assert as_run({**apart, "scheduler": ""}) == apart


def test_settings_that_lose_history_and_copies_that_lag() -> None:
    stream = STREAM._replace(
        wrong=(Setting("max_age", "3600", "0 (no limit)"),),
        warnings=("compression is on",),
        is_clustered=True,
        copies=(Copy("nats-1", True, False, 0), Copy("nats-2", False, False, 7)),
    )
    found = of_log(stream)
    assert [(one.severity, one.code) for one in found] == [
        (ERROR, "LogSetting"),
        (WARNING, "LogSetting"),
        (WARNING, "LogOneReplica"),
        (WARNING, "LogReplicaBehind"),
        (WARNING, "LogReplicaBehind"),
    ]
    assert found[0].message == "max_age is 3600; wanted: 0 (no limit)"
    assert found[3].message == "its copy on NATS server nats-1 is offline"
    assert found[4].message == "its copy on NATS server nats-2 is 7 records behind"


def test_annotations_that_nobody_reads_are_named_also_of_pods_that_run() -> None:
    wrong = (("nvidia.com/use-gpuuuid", "volcano.sh/vgpu-use-gpuuuid"),)
    runs = build.pod("a", node="n1", phase="Running", misnamed=wrong)
    waits = build.pod("b", misnamed=wrong)
    (found,) = findings(build.state_of(build.node("n1"), runs, waits), NOW_MS)
    assert (found.code, found.subject) == (
        "AnnotationNotRead",
        "pods default/pod-a, default/pod-b",
    )
    assert found.message == (
        "annotation nvidia.com/use-gpuuuid (HAMi) is ignored here; write the annotation "
        "volcano.sh/vgpu-use-gpuuuid instead"
    )
    assert found.never_start == 0


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names for which it was looked which one may be meant."""
    names: list[str] = []

    def nearest(name: str, known: set[str]) -> str:
        names.append(name)
        return unserved.nearest(name, known)

    monkeypatch.setattr(verdict, "nearest", nearest)
    return names


QUEUES = [QueueObserved(uid=f"q{n}", name=f"team-{n:04}", rv=1) for n in range(1_000)]


def test_a_queue_is_looked_for_once_and_few_are_named(compared: list[str]) -> None:
    pods = [build.pod(f"p{n}", queue="elsewhere") for n in range(50)]
    (found,) = findings(build.state_of(*QUEUES, build.node("n1"), *pods), NOW_MS)
    assert found.message == (
        "queue elsewhere does not exist; there are default, team-0000, team-0001, team-0002, "
        "team-0003, team-0004, team-0005, team-0006 and 993 more"
    )
    assert (found.pods_total, found.never_start) == (50, 50)
    assert compared == ["elsewhere"]


def test_findings_of_one_kind_are_few(compared: list[str]) -> None:
    """Each of 500 pods names another queue that does not exist; one of them is named by two."""
    pods = [build.pod(f"p{n:03}", queue=f"lost{n}") for n in range(500)]
    pods.append(build.pod("twice", queue="lost77"))
    found = findings(build.state_of(*QUEUES, build.node("n1"), *pods), NOW_MS)
    assert [one.code for one in found] == ["QueueUnknown"] * 21
    assert max(one.pods_total for one in found[:20]) == 2
    rest = found[-1]
    assert rest.subject == "the other 480 pods"
    assert rest.message.startswith("480 more of this kind; the first: queue lost")
    assert (rest.pods_total, len(rest.pods)) == (480, 100)
    assert sum(one.never_start for one in found) == 501
    assert len(compared) <= 64


def test_there_always_is_a_default_queue() -> None:
    assert findings(build.state_of(QUEUES[0], build.node("n1"), build.pod("p")), NOW_MS) == []


def test_a_segment_that_is_not_archived_is_a_problem_where_there_is_an_archiver() -> None:
    state = build.state_of()
    hour_ms = 3_600_000

    def append(event: Event) -> None:
        apply(state, event, state.seq + 1)

    def close(number: int, at_ms: int) -> None:
        first_seq = state.segments.open.first_seq
        append(SegmentClosing(number=number, cause="size"))
        last_seq = state.seq
        append(CheckpointPart(closing=last_seq, index=0, data=b""))
        append(
            SegmentClosed(
                number=number,
                at_ms=at_ms,
                first_seq=first_seq,
                last_seq=last_seq,
                parts=1,
                image_bytes=1,
                digest="",
                chain="",
            )
        )

    def found(time_ms: int) -> list[str]:
        return [f.message for f in findings(state, time_ms) if f.code == "SegmentNotArchived"]

    close(1, 0)
    assert found(9 * hour_ms) == [], "nothing says that there is an archiver"
    append(SegmentArchived(number=1, uri="file:///a", sha256="", size_bytes=1))
    close(2, 2 * hour_ms)
    close(3, 3 * hour_ms)
    assert found(3 * hour_ms) == []
    (said,) = found(5 * hour_ms)
    assert said.startswith("was closed 3h00m ago and is not archived, as 2 in all")
    append(SegmentArchived(number=2, uri="file:///a", sha256="", size_bytes=1))
    append(SegmentArchived(number=3, uri="file:///a", sha256="", size_bytes=1))
    assert found(9 * hour_ms) == []
