"""Policies: of the specification's text, with plugins that score, and with everything."""

from typing import Any

import msgspec
from hypothesis import strategies as st

from allotment_board.encode import POLICY_NUMBERS
from allotment_proto.facts import BUILT_IN_TIERS, PluginUse, Policy, Typical
from tests.strategies.request import mixes

_plugin_uses = st.builds(
    PluginUse,
    st.sampled_from(("gang", "drf")),
    st.sampled_from(((), ("enableJobOrder",))),
    st.sampled_from(((), ("enableHierarchy",))),
    st.sampled_from(((), (("strict", False), ("word", "x")))),
)


def _arguments(*chosen: tuple[str, tuple[int | bool, ...]]) -> st.SearchStrategy[Any]:
    """Some of the arguments, each with one of its values, sorted."""
    given = {name: st.sampled_from(values) for name, values in chosen}
    drawn = st.fixed_dictionaries({}, optional=given)
    return drawn.map(lambda found: tuple(sorted(found.items())))


_WEIGHTS = (0, 1, 3, 1_000)
_placing_uses = st.one_of(
    st.builds(
        PluginUse,
        st.just("nodeorder"),
        st.sampled_from(((), (), (), ("enableNodeOrder",))),
        arguments=_arguments(
            ("leastrequested.weight", _WEIGHTS),
            ("mostrequested.weight", _WEIGHTS),
            ("balancedresource.weight", _WEIGHTS),
            ("balancedresource.kubernetesMinor", (32, 36)),
            ("nodeaffinity.weight", _WEIGHTS),
            ("podaffinity.weight", _WEIGHTS),
            ("podtopologyspread.weight", _WEIGHTS),
            ("imagelocality.weight", _WEIGHTS),
            ("tainttoleration.weight", _WEIGHTS),
        ),
    ),
    st.builds(
        PluginUse,
        st.just("binpack"),
        arguments=_arguments(
            ("binpack.weight", (0, 1, 10, 1_000)),
            ("binpack.cpu", _WEIGHTS),
            ("binpack.memory", _WEIGHTS),
            ("binpack.resources.nvidia.com/gpu", _WEIGHTS),
        ),
    ),
    st.builds(
        PluginUse,
        st.just("resource-strategy-fit"),
        arguments=_arguments(
            ("resourceStrategyFitWeight", (1, 10)),
            ("most.nvidia.com/*", (1, 3)),
            ("least.cpu", (1, 3)),
            ("most.memory", (1, 3)),
        ),
    ),
    st.builds(
        PluginUse,
        st.just("predicates"),
        arguments=_arguments(
            ("predicate.NodeAffinityEnable", (True, False)),
            ("predicate.NodePortsEnable", (True, False)),
            ("predicate.PodAffinityEnable", (True, False)),
            ("predicate.PodTopologySpreadEnable", (True, False)),
            ("predicate.TaintTolerationEnable", (True, False)),
            ("predicate.VolumeBindingEnable", (True, False)),
        ),
    ),
)


def _one_tier(uses: list[PluginUse]) -> tuple[tuple[PluginUse, ...], ...]:
    return (tuple(uses),) if uses else ()


_placing_tiers = st.lists(_placing_uses, min_size=1, max_size=4, unique_by=lambda use: use.name)


def _policies(
    names: tuple[str, ...],
    learned: st.SearchStrategy[tuple[Typical, ...]],
    placing: st.SearchStrategy[Any],
    backlogs: tuple[int, ...] = (0,),
) -> st.SearchStrategy[Policy]:
    return st.builds(
        Policy,
        device_policy=st.sampled_from(names),
        device_weight=st.sampled_from((0, 10)),
        host_policy=st.sampled_from(("binpack", "spread", "none", "later")),
        host_weight=st.sampled_from((0, 1, 100)),
        fit_weight=st.sampled_from((0, 10, 100)),
        families=st.sampled_from((("vgpu", "gpushare"), ("vgpu", "gpushare"), ("vgpu",))),
        mix=learned,
        mig_order=st.sampled_from(("best-fit", "least-stranded", "listed")),
        actions=st.sampled_from((("enqueue", "allocate", "backfill"), ("allocate",), ())),
        tiers=st.one_of(
            st.just(BUILT_IN_TIERS), st.lists(_plugin_uses, max_size=2).map(_one_tier), placing
        ),
        configurations=st.lists(_plugin_uses, max_size=1).map(tuple),
        plugin_backlog=st.sampled_from(backlogs),
    )


policies = _policies(("binpack", "spread", "none"), st.just(()), st.nothing())
"""The policies of the specification's text, which `tests.oracle` knows."""
every_policy = _policies(
    tuple(POLICY_NUMBERS),
    st.one_of(st.just(()), mixes),
    _placing_tiers.map(_one_tier),
    (0, 0, 1, 2),
)


terms_policies = st.builds(
    lambda policy, tiers: msgspec.structs.replace(policy, tiers=tiers),
    policies,
    st.one_of(st.just(BUILT_IN_TIERS), *[_placing_tiers.map(_one_tier)] * 3),
)
"""The same with plugins that score."""
