"""`allot policy check`: what a configuration will do, said before it is applied."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from allotment.core.config.policy import parse
from allotment_cli.main import main

FROM_VOLCANO = """\
actions: "enqueue, allocate, backfill, shuffle"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: tdm
    arguments:
      tdm.revocable-zone.rz1: 10:00-21:00
- plugins:
  - name: numaaware
  - name: network-topology-aware
  - name: rescheduling
  - name: usage
  - name: deviceshare
    arguments:
      deviceshare.VGPUEnable: true
  - name: predicates
    arguments:
      predicate.VGPUEnable: true
      predicate.GPUSharingEnable: true
"""
MAP = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: volcano-scheduler-configmap
  namespace: volcano-system
data:
"""


def check(file: Path, *arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(main, ["policy", "check", str(file), *arguments], input=stdin)


def answer(file: Path) -> dict[str, Any]:
    return dict(json.loads(check(file, "-o", "json").stdout))


def block(text: str, indent: int = 4) -> str:
    lines = "".join(f"{' ' * indent}{line}\n" for line in text.splitlines())
    return f"  volcano-scheduler.conf: |\n{lines}"


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "volcano-scheduler.conf"
    path.write_text(FROM_VOLCANO)
    return path


def test_every_line_without_effect_is_named(conf: Path) -> None:
    result = check(conf)
    assert result.exit_code == 1
    said = [line.removeprefix(f"{conf}:") for line in result.stdout.splitlines()]
    assert said[:8] == [
        "1:10: warning: actions: shuffle is not supported; read, has no effect",
        "6:11: warning: plugin tdm: read, has no effect",
        "10:11: warning: plugin numaaware: read, has no effect",
        "11:11: warning: plugin network-topology-aware: read, has no effect",
        "12:11: warning: plugin rescheduling: read, has no effect",
        "13:11: warning: plugin usage: read, has no effect",
        "19:7: warning: unknown argument predicate.VGPUEnable of plugin predicates, ignored; it is "
        "deviceshare.VGPUEnable of the plugin deviceshare",
        "20:7: warning: unknown argument predicate.GPUSharingEnable of plugin predicates, ignored; "
        "it is deviceshare.GPUSharingEnable of the plugin deviceshare",
    ]
    assert said[8] == f"{conf} can be used: 8 remarks; everything else takes effect"
    assert "  tier 1   priority, gang, tdm (no effect)" in said
    assert "  cards    binpack, weight 10; served: vgpu" in said


def test_it_says_what_the_scheduler_would_say(conf: Path) -> None:
    warnings = parse(FROM_VOLCANO, "x", ("allotment",)).warnings
    found = answer(conf)
    assert found["schema"] == "allotment.dev/policy-check/v1"
    said = [f"x:{one['line']}:{one['column']}: {one['message']}" for one in found["remarks"]]
    assert tuple(said) == warnings
    assert found["isUsable"]
    plugins = {one["name"]: one["hasEffect"] for one in found["outcome"]["plugins"]}
    assert (plugins["gang"], plugins["tdm"]) == (True, False)


@pytest.mark.parametrize("before", ["", "apiVersion: v1\nkind: Namespace\n---\n"])
def test_places_in_a_manifest_are_those_of_the_file(
    conf: Path, tmp_path: Path, before: str
) -> None:
    manifest = tmp_path / "map.yaml"
    manifest.write_text(before + MAP + block(FROM_VOLCANO))
    found = answer(manifest)
    assert found["place"] == "volcano-system/volcano-scheduler-configmap"
    lines = manifest.read_text().splitlines()
    bare = answer(conf)["remarks"]
    assert [one["message"] for one in found["remarks"]] == [one["message"] for one in bare]
    for inside, outside in zip(bare, found["remarks"], strict=True):
        words = FROM_VOLCANO.splitlines()[inside["line"] - 1][inside["column"] - 1 :]
        assert lines[outside["line"] - 1][outside["column"] - 1 :] == words


def test_a_text_in_quotes_has_places_of_its_own(tmp_path: Path) -> None:
    manifest = tmp_path / "map.yaml"
    text = json.dumps('actions: "allocate"\ntiers:\n- plugins:\n  - name: tdm\n')
    manifest.write_text(f"{MAP}  volcano-scheduler.conf: {text}\n")
    (remark,) = answer(manifest)["remarks"]
    assert (remark["line"], remark["column"]) == (0, 0)
    assert remark["message"] == "line 4 of the text, column 11: plugin tdm: read, has no effect"


def test_a_list_of_objects_is_looked_through(tmp_path: Path) -> None:
    manifest = tmp_path / "list.yaml"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    good = {**body, "data": {"volcano-scheduler.conf": 'actions: "allocate"'}}
    manifest.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [body, good]}))
    found = answer(manifest)
    assert (found["place"], found["outcome"]["actions"]) == ("default/a", ["allocate"])


def test_a_text_that_is_refused_says_why_and_what_stays(tmp_path: Path) -> None:
    result = check(
        Path("-"), stdin='actions: "alocate, shuffle"\ntiers:\n- plugins:\n  - name: gagn\n'
    )
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "-:1:10: error: actions is 'alocate'; wanted: one of allocate, backfill, enqueue, preempt, "
        "reclaim; did you mean allocate?",
        "-:4:11: error: unknown plugin 'gagn'; did you mean gang?",
        "-:1:10: warning: actions: shuffle is not supported; read, has no effect",
        "the text has 2 errors and would be rejected; the current configuration stays active",
    ]


def test_a_configuration_that_is_followed_whole_exits_0(tmp_path: Path) -> None:
    shipped = Path(__file__).parents[2] / "deploy" / "base" / "volcano-scheduler.conf"
    result = check(shipped)
    assert (result.exit_code, "every line takes effect" in result.stdout) == (0, True)


def test_preferences_that_would_not_count_are_named(tmp_path: Path) -> None:
    weighs = "tiers:\n- plugins:\n  - name: nodeorder\n"
    file = tmp_path / "volcano-scheduler.conf"
    for text, kinds in ((FROM_VOLCANO, 4), (weighs, 0)):
        file.write_text(text)
        assert len(answer(file)["outcome"]["ignoredPreferences"]) == kinds
        assert ("  ignored  preferred node affinity" in check(file).stdout) == bool(kinds)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read: No such file or directory"),
        (MAP + "  scheduler.conf: x\n", "has no ConfigMap with a key volcano-scheduler.conf"),
        (f"{MAP}{block('a: 1')}---\n{MAP}{block('a: 1')}", "has 2 configurations"),
    ],
)
def test_what_cannot_be_asked_exits_2(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "map.yaml"
    if text is not None:
        path.write_text(text)
    result = check(path)
    assert result.exit_code == 2
    assert said in result.output
    assert result.output.count(str(path)) == 1


@pytest.mark.parametrize("text", ["", "tiers: [: no yaml", "- a\n", "\x00", "a: &a [*a]"])
def test_any_text_gets_an_answer(tmp_path: Path, text: str) -> None:
    path = tmp_path / "odd.conf"
    path.write_text(text)
    assert check(path).exit_code in (0, 1)
