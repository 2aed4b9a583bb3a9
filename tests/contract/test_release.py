"""The release workflow, as far as it can be known without a run, and what it asks of `make`."""

import os
import re
import shlex
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.contract.manifests import HELM, ROOT, needs_helm

Object = dict[str, Any]
TEXT = (ROOT / ".github/workflows/release.yml").read_text()
WORKFLOW: Object = yaml.safe_load(TEXT)
JOBS: dict[str, Object] = WORKFLOW["jobs"]
STEPS: list[tuple[str, Object]] = [(name, step) for name in JOBS for step in JOBS[name]["steps"]]
READ, OCI, SIGN = {"contents": "read"}, {"packages": "write"}, {"id-token": "write"}
RIGHTS = {
    "test": READ,
    "image": READ | OCI | SIGN,
    "chart": READ | OCI | SIGN,
    "wheel": SIGN,
    "release": {"contents": "write"} | SIGN,
}
"""Only the job that makes the release may write to the repository, and it runs none of its code."""


def scripts(job: str) -> str:
    return "\n".join(step.get("run", "") for step in JOBS[job]["steps"])


def uses(job: str, action: str) -> Object:
    (found,) = [s for s in JOBS[job]["steps"] if s.get("uses", "").startswith(f"{action}@")]
    return dict(found["with"])


def test_every_action_is_pinned_by_commit_and_names_its_version() -> None:
    lines = re.findall(r"uses: (.*)", TEXT)
    assert len(lines) == sum("uses" in step for _, step in STEPS)
    pins: dict[str, set[str]] = {}
    for line in lines:
        pinned = re.fullmatch(r"([\w./-]+)@([0-9a-f]{40}) # (v\d+\.\d+\.\d+)\b.*", line)
        assert pinned is not None, line
        pins.setdefault(pinned[1], set()).add(pinned[2])
    assert {action for action, found in pins.items() if len(found) > 1} == set()


def test_only_a_tag_starts_it_and_each_job_has_the_rights_that_it_needs() -> None:
    assert WORKFLOW["on"] == {"push": {"tags": ["v*"]}}
    assert WORKFLOW["permissions"] == {}
    assert {name: job["permissions"] for name, job in JOBS.items()} == RIGHTS
    for _, step in STEPS:
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"] == {"persist-credentials": False}
    assert not [s for s in JOBS["release"]["steps"] if "actions/checkout" in s.get("uses", "")]
    assert all("timeout-minutes" in job for job in JOBS.values())


def test_nothing_is_published_untested() -> None:
    def before(job: str) -> set[str]:
        needs = JOBS[job].get("needs", [])
        direct = {needs} if isinstance(needs, str) else set(needs)
        return direct.union(*map(before, direct))

    assert all("test" in before(job) for job in JOBS if job != "test")
    assert before("release") == JOBS.keys() - {"release"}
    order = re.findall(r"make (\S+)", scripts("test"))
    assert order == ["release-tag", "check", "helm", "test", "wheel"]


def test_its_commands_exist_and_contain_nothing_that_a_name_could_inject() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for _, step in STEPS:
        run = step.get("run", "")
        assert "${{" not in run, "values reach a script by its environment only"
        assert set(re.findall(r"\bmake ([\w-]+)", run)) <= targets


def test_the_image_is_for_both_processors_with_its_contents_listed_and_signed_by_digest() -> None:
    build = uses("image", "docker/build-push-action")
    assert (ROOT / build["file"]).is_file()
    assert build["platforms"].split(",") == ["linux/amd64", "linux/arm64"]
    assert (build["push"], build["sbom"], build["provenance"]) == (True, True, "mode=max")
    declared = set(re.findall(r"^ARG (\w+)", (ROOT / build["file"]).read_text(), re.MULTILINE))
    assert {line.partition("=")[0] for line in build["build-args"].splitlines()} <= declared
    assert JOBS["image"]["outputs"]["digest"] == "${{ steps.build.outputs.digest }}"
    (signs,) = [s for s in JOBS["image"]["steps"] if "cosign sign" in s.get("run", "")]
    assert signs["env"]["IMAGE"].endswith("@${{ steps.build.outputs.digest }}")
    assert 'cosign sign --yes --recursive "$IMAGE"' in signs["run"]
    assert uses("image", "actions/upload-artifact")["name"] == "sbom"


def test_it_builds_with_the_python_that_ships() -> None:
    shipped = re.search(r"PYTHON_IMAGE=python:(3\.\d+)-", (ROOT / "deploy/Dockerfile").read_text())
    assert shipped is not None
    for job in ("test", "chart"):
        assert uses(job, "actions/setup-python") == {"python-version": shipped[1]}


def make(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "--silent", *words],
        cwd=ROOT,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )


@needs_helm
def test_the_published_chart_installs_the_image_of_its_release(tmp_path: Path) -> None:
    digest = f"sha256:{'1' * 64}"
    (run,) = [step for step in JOBS["chart"]["steps"] if "make chart" in step.get("run", "")]
    words = [
        w.replace("$IMAGE", "ghcr.io/a/b").replace("$DIGEST", digest)
        for w in shlex.split(run["run"])
    ]
    made = make(*words[1:], f"DIST={tmp_path}")
    assert made.returncode == 0, made.stderr
    (package,) = tmp_path.glob("allotment-*.tgz")
    with tarfile.open(package) as files:
        assert not [each for each in files if each.issym()]
    rendered = subprocess.run(
        [HELM or "", "template", "a", package], capture_output=True, text=True, check=True
    )
    images = set(re.findall(r"image: (\S+)", rendered.stdout))
    assert {each for each in images if "nats" not in each} == {f"ghcr.io/a/b@{digest}"}
    assert make("chart", f"DIST={tmp_path}").returncode == 2


def test_the_wheel_is_what_is_published(tmp_path: Path) -> None:
    made = make("wheel", f"DIST={tmp_path}")
    assert made.returncode == 0, made.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        assert "allotment_local/annotation-policy.yaml" in files.namelist()


@pytest.mark.parametrize("tag", ["v9.9.9", "0.1.0", "v$(error expanded)"])
def test_a_tag_that_is_not_the_version_is_refused(tag: str) -> None:
    made = make("release-tag", TAG=tag)
    assert made.returncode == 2
    assert f"the tag is {tag}, but pyproject.toml has the version" in made.stderr
