"""The growth bench measures the points asked for and draws them; the baseline can be used."""

from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from click.testing import CliRunner, Result

from allotment_cli.bench.batch import BatchReport
from allotment_cli.bench.core import CoreReport
from allotment_cli.bench.e2e import E2eReport
from allotment_cli.bench.gang import GangReport
from allotment_cli.bench.growth_log import LogReport
from allotment_cli.bench.growth_plot import svg
from allotment_cli.bench.pipeline import PipelineReport
from allotment_cli.bench.replay import ReplayReport
from allotment_cli.bench.report import Report, find, holds_up
from allotment_cli.bench.watch import WatchReport
from allotment_cli.main import main

BASELINE = Path(__file__).with_name("baseline.jsonl")
PICTURE = BASELINE.with_name("growth.svg")
SVG = "{http://www.w3.org/2000/svg}"
KINDS: dict[str, type[Report]] = {
    "batch": BatchReport,
    "core": CoreReport,
    "e2e": E2eReport,
    "gang": GangReport,
    "log": LogReport,
    "pipeline": PipelineReport,
    "replay": ReplayReport,
    "watch": WatchReport,
}
TINY = ("--seconds", "0.1", "--held-nodes", "20", "--log-nodes", "40", "--log-live", "50")


def growth(*words: str) -> Result:
    return CliRunner().invoke(main, ["bench", "growth", *TINY, *words])


def kept(path: Path) -> list[Report]:
    """The reports in a file, each decoded as its bench's."""
    lines = path.read_text(encoding="utf-8").splitlines()
    names = [msgspec.json.decode(line)["bench"] for line in lines]
    return [
        msgspec.json.decode(line, type=KINDS[name]) for name, line in zip(names, lines, strict=True)
    ]


def test_every_point_asked_for_is_measured_once_and_drawn(tmp_path: Path) -> None:
    file, picture = tmp_path / "kept.jsonl", tmp_path / "growth.svg"
    sizes = ("--nodes", "20", "--shapes", "16,0", "--cards", "8", "--events", "1500")
    result = growth(*sizes, "--json", "--save", str(file), "--svg", str(picture))
    assert result.exit_code == 0, result.output
    points = [msgspec.json.decode(line) for line in result.stdout.splitlines()]
    assert [(point["axes"], point["bench"]) for point in points] == [
        (["nodes", "shapes", "cards"], "core"),
        (["shapes"], "core"),
        (["events"], "log"),
    ]
    assert [point["shapes"] for point in points[:2]] == [16, 0]
    assert points[2]["live_pods"] == 50
    assert points[2]["size"] == 1500
    assert all(point["rate_per_cpu_second"] > 0 for point in points)
    assert [report.bench for report in kept(file)] == ["core", "core", "log"]
    again = growth(*sizes, "--json", "--from", str(file))
    assert again.stdout == result.stdout, "kept points are not measured again"
    panels = ElementTree.parse(picture).getroot().findall(f"{SVG}g")
    assert [len(panel.findall(f"{SVG}circle")) for panel in panels] == [2, 4, 2, 2]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--nodes", "10,many"), "'10,many': whole numbers with commas between them"),
        (("--nodes", "10,-1"), "-1 is below 0"),
        (("--axis", "events", "--events", "900"), "take longer logs, fewer --log-nodes"),
        (("--axis", "nodes", "--nodes", "0"), "0 nodes × 8 cards, 16 shapes: Error: Invalid value"),
    ],
)
def test_what_cannot_be_measured_is_said(words: tuple[str, ...], said: str) -> None:
    result = growth(*words)
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_picture_of_one_point_and_of_shapes_without_bound() -> None:
    drawn = svg({"nodes": [(1, 0.5, 40)], "shapes": [(1, 30, 40), (4, 31, 40), (0, 900, 60)]})
    words = [text.text for text in ElementTree.fromstring(drawn).iter(f"{SVG}text")]
    assert {"1", "4", "own", "0.1", "1k"} <= set(words)
    with pytest.raises(ValueError, match="no points against cards"):
        svg({"cards": []})


def test_the_baseline_holds_a_report_of_every_bench_that_a_run_can_be_compared_with() -> None:
    reports = kept(BASELINE)
    assert {report.bench for report in reports} == set(KINDS)
    for report in reports:
        found = find(report, BASELINE)["rate_per_cpu_second"]
        assert found == report.rate_per_cpu_second, "two of the same thing"
        assert holds_up(report, BASELINE)
        slow = msgspec.structs.replace(report, rate_per_cpu_second=report.rate_per_cpu_second / 2)
        assert not holds_up(slow, BASELINE)


def test_the_committed_picture_is_well_formed() -> None:
    assert len(ElementTree.parse(PICTURE).getroot().findall(f"{SVG}g")) == 4
