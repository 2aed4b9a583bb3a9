"""Pods, any event at all, and lives: what happens to a cluster and its pods."""

from typing import Any

from hypothesis import strategies as st

from allotment_proto.events import (
    BindFailed,
    Bound,
    ConfigurationChecked,
    Corrected,
    Event,
    MixLearned,
    NodeGone,
    PodGone,
    PodObserved,
    PolicyLoaded,
    TimePassed,
)
from allotment_proto.facts import Holding, PodRequest, Policy, Problem
from tests import build
from tests.strategies.node import NODES, nodes
from tests.strategies.policy import every_policy
from tests.strategies.request import TAGS, calm_request, every_request, mixes, requests

PODS = tuple("abcdefgh")
names = st.text(st.characters(codec="utf-8"), max_size=12)


@st.composite
def pods(
    draw: st.DrawFn,
    uid: str = "a",
    rv: int = 1,
    wanted: st.SearchStrategy[PodRequest] = requests,
) -> PodObserved:
    """A pending pod, mostly ours."""
    return build.pod(
        uid,
        draw(wanted),
        rv=rv,
        priority=draw(st.sampled_from((0, 0, 10))),
        created_ms=draw(st.integers(0, 3)),
        gated=draw(st.integers(0, 9)) == 0,
        scheduler=draw(st.sampled_from(("allotment", "allotment", "allotment", "other"))),
        tags=draw(st.sampled_from(((), (), TAGS[:1], TAGS[1:2], TAGS))),
        owner=draw(st.sampled_from(("", "job"))),
        labels=draw(st.sampled_from(((), (("app", "web"),), (("app", "db"),), (("app", "x"),)))),
    )


holdings = st.lists(
    st.builds(
        Holding,
        st.sampled_from(("vgpu", "gpushare")),
        st.integers(0, 1),
        st.sampled_from(("n1-0", "n1-1", "n2-0", "0", "1", "unheard")),
        st.sampled_from((0, 2_000, 16_000)),
        st.sampled_from((0, 50, 100)),
        st.sampled_from(("", "", "g1-0", "g1-1", "g2-3", "g3-9")),
    ),
    max_size=3,
).map(tuple)


def events() -> st.SearchStrategy[Event]:
    """Any event, with any text in its names: for encoding, not for folding."""
    named: dict[str, Any] = {"uid": names, "namespace": names, "name": names}
    numbers = st.integers(0, 1 << 53)
    return st.one_of(
        st.sampled_from(NODES).flatmap(nodes),
        st.sampled_from(PODS).flatmap(lambda uid: pods(uid, wanted=every_request)),
        st.builds(NodeGone, name=names, uid=names, rv=numbers),
        st.builds(PodGone, **named, rv=numbers),
        st.builds(PolicyLoaded, policy=every_policy, source=names, text_sha256=names),
        st.builds(MixLearned, policy=names, mix=mixes, pods=numbers),
        st.builds(
            ConfigurationChecked,
            kind=st.sampled_from(("scheduler", "device")),
            source=names,
            problems=st.lists(st.builds(Problem, names, names, names), max_size=2).map(tuple),
        ),
        st.builds(TimePassed, at_ms=numbers),
        st.builds(Bound, **named, node=names, decision=numbers),
        st.builds(
            Corrected,
            **named,
            node=names,
            decision=numbers,
            holdings=holdings,
            was=holdings,
            code=names,
            message=names,
            served=names,
        ),
        st.builds(
            BindFailed,
            **named,
            node=names,
            decision=numbers,
            code=names,
            message=names,
            holdings=holdings,
        ),
        st.builds(
            PodObserved,
            **named,
            rv=numbers,
            created_ms=numbers,
            scheduler=names,
            request=every_request,
            problem=st.none() | st.builds(Problem, names, names, names),
        ),
    )


@st.composite
def lives(draw: st.DrawFn, policy: st.SearchStrategy[Policy]) -> list[Event]:
    """A policy, nodes with cards, pods that wait, most of them for what there is; then what happens
    to them: pods that leave and come back asking for something else, nodes that change, leave and
    join, and seldom another policy.
    """

    def pod(uid: str) -> PodObserved:
        return draw(pods(uid, wanted=calm_request if draw(st.booleans()) else every_request))

    def loaded() -> list[Event]:
        chosen = draw(policy)
        learned = MixLearned(policy=chosen.device_policy, mix=chosen.mix, pods=1)
        return [PolicyLoaded(policy=chosen, source="test", text_sha256=""), learned]

    events: list[Event] = [*loaded(), *(draw(nodes(name)) for name in NODES), *map(pod, PODS)]
    for word in draw(
        st.lists(st.sampled_from(("pod", "pod", "node", "gone", "policy")), max_size=8)
    ):
        name, uid = draw(st.sampled_from(NODES)), draw(st.sampled_from(PODS))
        match word:
            case "pod":
                events += [PodGone(uid=uid, namespace="", name="", rv=1), pod(uid)]
            case "node":
                events.append(draw(nodes(name)))
            case "gone":
                events.append(NodeGone(name=name, uid=f"uid-{name}", rv=1))
            case _:
                events += loaded()
    return events
