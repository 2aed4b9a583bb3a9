"""What `allot demo` runs with: the built-in configuration but for what its file says."""

from pathlib import Path

import msgspec

from allotment.core.config.policy import built_in, parse

RULES = Path(__file__).parents[2] / "deploy" / "examples" / "config" / "demo.conf"


def test_where_the_examples_end_up_does_not_depend_on_how_fast_device_plugins_are() -> None:
    found = parse(RULES.read_text(), str(RULES), ("allotment",))
    assert found.warnings == ()
    assert found.policy.plugin_backlog == 0
    ours = built_in(("allotment",))
    assert found.policy == msgspec.structs.replace(
        ours,
        actions=("enqueue", "allocate", "preempt", "backfill"),
        exclusive_rules=((("example.com/workload", "latency-critical"),),),
        plugin_backlog=0,
        tiers=found.policy.tiers,
    )
    named = [use.name for tier in found.policy.tiers for use in tier]
    known = [use.name for tier in ours.tiers for use in tier if use.name != "nodeorder"]
    assert sorted(named) == sorted([*known, "allotment"])
