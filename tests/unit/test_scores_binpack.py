"""binpack and resource-strategy-fit: the specification's examples, and the same on real nodes."""

import pytest

from allotment.core.placement.rules.points import FULL_MICRO, POINT_MICRO
from allotment.core.placement.rules.resource_shares import (
    Binpack,
    Strategy,
    StrategyFit,
    binpack_micro,
    fit_micro,
)
from allotment.core.placement.rules.score_term import Amount
from allotment.core.placement.rules.terms import host_terms, weights_of
from allotment_proto.facts import PluginUse, PodRequest, Policy
from tests import build

GIB = build.GIB
CPU, MEMORY, GPU = "cpu", "memory", "nvidia.com/gpu"
VGPU = "volcano.sh/vgpu-memory"


def cpu(used: int, asked: int, size: int) -> tuple[str, Amount]:
    return CPU, Amount((used + asked) * 1_000, size * 1_000)


def memory(used: int, asked: int, size: int) -> tuple[str, Amount]:
    return MEMORY, Amount((used + asked) * GIB, size * GIB)


def counted(used: int, asked: int, size: int, name: str = GPU) -> tuple[str, Amount]:
    return name, Amount(used + asked, size)


@pytest.mark.parametrize(
    ("example", "binpack", "asked", "micro"),
    [
        (
            "EX-BINPACK A",
            Binpack(10, {CPU: 5, MEMORY: 1, GPU: 2}),
            [cpu(2, 2, 8), memory(4, 4, 16), counted(2, 1, 4)],
            562_500_000,
        ),
        (
            "EX-BINPACK B",
            Binpack(10, {CPU: 5, MEMORY: 1, GPU: 2}),
            [cpu(2, 2, 8), memory(4, 4, 16), counted(0, 1, 0)],
            375_000_000,
        ),
        ("EX-BINPACK C", Binpack(10, {CPU: 1, MEMORY: 1}), [cpu(2, 3, 4)], 0),
        (
            "EX-BINPACK D",
            Binpack(1, {CPU: 1, MEMORY: 1}),
            [cpu(1, 1, 4), memory(3, 1, 16), counted(0, 1, 8)],
            37_500_000,
        ),
        (
            "EX-BINPACK E",
            Binpack(10, {CPU: 1, MEMORY: 1, VGPU: 10}),
            [cpu(2, 2, 16), memory(4, 4, 64), counted(40_000, 8_000, 163_840, VGPU)],
            275_390_625,
        ),
        (
            "EX-BINPACK F",
            Binpack(1, {CPU: 1, MEMORY: 0}),
            [cpu(1, 1, 4), memory(0, 1, 8)],
            50_000_000,
        ),
        ("nothing that counts is asked for", Binpack(1, {CPU: 1}), [counted(0, 1, 8)], 0),
    ],
)
def test_binpack(
    example: str, binpack: Binpack, asked: list[tuple[str, Amount]], micro: int
) -> None:
    assert binpack_micro(binpack, asked) == micro, example


def test_an_overbooked_resource_without_weight_does_not_matter() -> None:
    binpack = Binpack(1, {CPU: 1, MEMORY: 0})
    assert binpack_micro(binpack, [cpu(1, 1, 4), memory(8, 1, 8)]) == 50 * POINT_MICRO


def test_strategies_pack_one_resource_and_spread_another() -> None:
    fit = StrategyFit(10, {GPU: Strategy(True, 2), CPU: Strategy(False, 1)}, ())
    asked = [cpu(2, 2, 16), counted(2, 1, 4), memory(1, 1, 4)]
    assert fit_micro(fit, asked) == 10 * (2 * 75 + 75) * POINT_MICRO // 3
    assert fit_micro(fit, [cpu(2, 2, 16), counted(4, 1, 4)]) == 0, "it does not fit"
    assert fit_micro(fit, [memory(1, 1, 4)]) == 0, "no strategy for what is asked"


def test_a_name_with_an_asterisk_is_for_what_has_no_name_of_its_own() -> None:
    wide, narrow, own = Strategy(True, 1), Strategy(False, 2), Strategy(True, 3)
    policy = Policy(
        tiers=(
            (
                PluginUse(
                    "resource-strategy-fit",
                    arguments=(
                        ("least.nvidia.com/mig-*", narrow.weight),
                        ("most.nvidia.com/*", wide.weight),
                        ("most.nvidia.com/gpu", own.weight),
                    ),
                ),
            ),
        )
    )
    fit = weights_of(policy).of_terms[2]
    assert fit is not None
    assert fit.of("nvidia.com/gpu") == own
    assert fit.of("nvidia.com/mig-1g.5gb") == narrow, "the longest beginning counts"
    assert fit.of("nvidia.com/other") == wide
    assert fit.of("amd.com/gpu") is None


def test_without_strategies_cpu_and_memory_are_spread() -> None:
    fit = weights_of(Policy(tiers=((PluginUse("resource-strategy-fit"),),))).of_terms[2]
    assert fit is not None
    assert fit_micro(fit, [cpu(0, 2, 8), memory(0, 1, 2)]) == 10 * 62_500_000


def test_vgpu_memory_is_counted_as_the_pod_asks_and_the_node_lists_it() -> None:
    """EX-BINPACK E on a node of the state: amounts of vGPU resources are plain counts there."""
    state = build.state_of(
        build.node(
            cpu_milli=16_000,
            memory_bytes=64 * GIB,
            extended=((VGPU, 163_840),),
        ),
        build.pod(
            "x",
            build.request(cpu_milli=2_000, memory_bytes=4 * GIB, extended=((VGPU, 40_000),)),
            node="n1",
        ),
    )
    arguments = (("binpack.resources.volcano.sh/vgpu-memory", 10), ("binpack.weight", 10))
    policy = Policy(tiers=((PluginUse("binpack", arguments=arguments),),))
    request = PodRequest(2_000, 4 * GIB, ((VGPU, 8_000),))
    terms = host_terms(state.nodes["n1"], request, weights_of(policy))
    assert terms == (("binpack", 275_390_625),)


def test_a_switched_off_plugin_and_the_built_in_tiers_add_nothing() -> None:
    state = build.state_of(build.node())
    node, request = state.nodes["n1"], build.request()
    off = PluginUse("binpack", off=("enableNodeOrder",))
    assert host_terms(node, request, weights_of(Policy(tiers=((off,),)))) == ()
    assert host_terms(node, request, weights_of(Policy())) == ()
    on = host_terms(node, request, weights_of(Policy(tiers=((PluginUse("binpack"),),))))
    assert [name for name, _ in on] == ["binpack"]
    assert 0 < on[0][1] < FULL_MICRO
