"""The tables and drawings of `allot simulate`: names, numbers, and in which order they come."""

import msgspec

from allotment_cli.plan.simulated import differences, lines, shown
from allotment_lab.engine import Totals
from allotment_lab.simulate.report import RunReport, report

TOTALS = Totals(
    capacity_milli=1_000_000,
    arrived_milli=4547,
    allocated_milli=4547,
    peak_milli=4547,
    fragmented_milli=4547,
    idle_cards=995,
    arrived=3,
    placed=2,
    refused=1,
    refusals={"NoGPU": 1},
    waits_s=[],
    decisions=3,
    trace_sha256="",
    curve=[(0, 0, 0), (4547, 4547, 1)],
)


def run(policy: str = "spread", seed: int = 1, **changed: object) -> RunReport:
    totals = TOTALS._replace(**changed)  # type: ignore[arg-type]
    facts = {"policy": policy, "through": "core", "mode": "arrivals"}
    return report(totals, **facts, seed=seed, nodes=9, cpu_s=0)


def test_a_number_is_rounded_once() -> None:
    found = run()
    assert '"allocation_percent":0.4547,' in msgspec.json.encode(found).decode()
    row = lines([found])[2].split()
    assert row[:2] == ["spread", "1"]
    assert row[2:4] == ["0.45", "0.45"]


def test_means_come_first_and_then_each_policys_refusals_once() -> None:
    runs = [
        run(policy, seed, refused=2, refusals={"NoGPU": seed, "InsufficientCPU": 5})
        for seed in (1, 2)
        for policy in ("spread", "fgd")
    ]
    text = lines(runs)
    at = text.index("refused, by the last obstacle, all runs together:")
    assert text.index("mean of the runs:") < at
    assert text[at + 1 :] == [
        "REASON           spread  fgd",
        "InsufficientCPU      10   10",
        "NoGPU                 3    3",
    ]


def test_a_reason_that_a_policy_does_not_have_is_no_number() -> None:
    runs = [run("spread", refusals={"NoGPU": 1}), run("fgd", refusals={"InsufficientCPU": 2000})]
    assert lines(runs)[-3:] == [
        "REASON           spread    fgd",
        "InsufficientCPU       -  2,000",
        "NoGPU                 1      -",
    ]


def test_pods_that_start_at_another_time_are_named() -> None:
    first = {
        **{f"u{n}": (f"p{n}", 60) for n in range(9)},
        "early": ("early", 90),
        "lost": ("lost", 5),
        "found": ("found", None),
        "same": ("s", 1),
    }
    other = {
        **{f"u{n}": (f"p{n}", 60 + 600 * (n + 1)) for n in range(9)},
        "early": ("early", 30),
        "lost": ("lost", None),
        "found": ("found", 7),
        "same": ("s", 1),
        "successor": ("made under this policy only", 3),
    }
    text = differences({"binpack": first, "x/spread.conf": other}, 42)
    assert text[0] == ("pods that start at another time than under binpack, or never (seed 42):")
    rows = [line.split(maxsplit=3) for line in text[2:]]
    assert rows == [
        ["spread.conf", "never", "1", "lost"],
        [
            *("spread.conf", "later", "9"),
            "p8 (1h30m), p7 (1h20m), p6 (1h10m), p5 (1h00m), p4 (50m00s), p3 (40m00s), 3 more",
        ],
        ["spread.conf", "earlier", "2", "early (1m00s), found (else never)"],
    ]
    assert differences({"binpack": first, "spread": first}, 42)[1:] == ["none"]
    assert differences({"binpack": first}, 42) == []


def test_one_run_has_no_means() -> None:
    text = lines([run()])
    assert "mean of the runs:" not in text
    assert text[-3:] == [
        "refused, by the last obstacle:",
        "REASON  spread",
        "NoGPU        1",
    ]
    assert not any("refused" in line for line in lines([run(refusals={}, refused=0)]))


def test_a_policys_file_is_shown_without_its_folders() -> None:
    assert shown(["spread", "/etc/volcano/a.conf", "b.conf"]) == {
        "spread": "spread",
        "/etc/volcano/a.conf": "a.conf",
        "b.conf": "b.conf",
    }
    for alike in (["x/a.conf", "y/a.conf"], ["x/spread"], ["x/recorded", "recorded"]):
        assert list(shown(alike).values()) == alike
