"""Where the policy comes from: the file, or what is built in; mistakes name their place."""

import hashlib
from pathlib import Path

import pytest

from allotment.core.config.policy import PolicyError, built_in
from allotment_proto.facts import PluginUse, Policy
from allotment_watcher.policy_source import fingerprint, load_policy

pytestmark = pytest.mark.anyio
NAMES = ("allotment", "volcano")
SPREAD = """
actions: "allocate"
tiers:
- plugins:
  - name: deviceshare
    arguments: {deviceshare.SchedulePolicy: spread}
  - name: usage
"""


async def test_without_a_file_the_built_in_policy_answers_to_the_given_names() -> None:
    loaded = await load_policy(None, NAMES)
    assert loaded.event.policy == built_in(NAMES)
    assert loaded.event.source == "built in"
    assert (loaded.warnings, loaded.seen) == ((), None)


async def test_a_file_is_read_with_its_hash_and_warnings(tmp_path: Path) -> None:
    path = tmp_path / "policy.conf"
    path.write_text(SPREAD)
    loaded = await load_policy(path, NAMES)
    assert loaded.event.policy == Policy(
        scheduler_names=NAMES,
        device_policy="spread",
        fit_weight=10,
        mig_order="best-fit",
        namespace_turns=True,
        plugin_backlog=4,
        actions=("allocate",),
        tiers=((PluginUse("deviceshare"), PluginUse("usage")),),
    )
    assert loaded.event.source == str(path)
    assert loaded.event.text_sha256 == hashlib.sha256(SPREAD.encode()).hexdigest()
    assert loaded.warnings == (f"{path}:7:11: plugin usage: read, has no effect",)
    assert loaded.seen == await fingerprint(path)


async def test_an_empty_file_is_the_built_in_policy(tmp_path: Path) -> None:
    path = tmp_path / "policy.conf"
    path.write_text("# nothing\n")
    assert (await load_policy(path, NAMES)).event.policy == built_in(NAMES)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"tiers: [", "not YAML"),
        (b"- a\n", "must be a mapping"),
        (b"actions: fly", "actions is 'fly'; wanted: one of"),
        (SPREAD.replace("spread", "sideways").encode(), "'sideways'; wanted: one of binpack"),
        (b"\xff\xfe\x00", "cannot be read"),
        (b"a: \x00", "not YAML"),
        (b"a: !!python/object:os.system x", "not YAML"),
        (b"1: 1\nactions: 7\n", "actions is 7; wanted"),
    ],
)
async def test_mistakes_name_the_file_the_value_and_the_remedy(
    tmp_path: Path, text: bytes, words: str
) -> None:
    path = tmp_path / "policy.conf"
    path.write_bytes(text)
    with pytest.raises(PolicyError) as caught:
        await load_policy(path, NAMES)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


async def test_all_mistakes_are_reported_together(tmp_path: Path) -> None:
    path = tmp_path / "policy.conf"
    path.write_text(SPREAD.replace("spread", "sideways").replace('"allocate"', "fly"))
    with pytest.raises(PolicyError) as caught:
        await load_policy(path, NAMES)
    assert len(caught.value.problems) == 2


async def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "nowhere.conf"
    with pytest.raises(PolicyError, match=r"nowhere.conf: cannot be read: .*No such file"):
        await load_policy(path, NAMES)
    assert await fingerprint(path) is None


async def test_the_fingerprint_changes_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "policy.conf"
    path.write_text("a")
    before = await fingerprint(path)
    path.write_text("ab")
    assert await fingerprint(path) != before
