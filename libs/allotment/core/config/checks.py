"""What is only wrong in combination."""

from allotment.core.config.known import QUOTA_PLUGINS
from allotment.core.config.plugins import Used
from allotment.core.config.report import Report

_VOTE = "enableJobEnqueued"


def check(report: Report, used: tuple[Used, ...]) -> None:
    """Refuse what Volcano refuses, and warn of what surely is not meant."""
    _hierarchy(report, used)
    _warnings_of_votes(report, used)


def _hierarchy(report: Report, used: tuple[Used, ...]) -> None:
    by_name = {one.use.name: one for one in used}
    drf, proportion = by_name.get("drf"), by_name.get("proportion")
    if drf is None or "enableHierarchy" not in drf.use.on:
        return
    if proportion is not None and proportion.tier == drf.tier:
        report.fail(
            drf.mark,
            "plugin drf with enableHierarchy cannot be in one tier with plugin proportion (line "
            f"{proportion.mark.line}); take one of them out",
        )
    else:
        report.warn(drf.mark, "enableHierarchy of plugin drf has no effect: shares are flat")


def _warnings_of_votes(report: Report, used: tuple[Used, ...]) -> None:
    """Where the rule of tiers hides a quota: a permit in one tier ends the vote on whether a job is
    enqueued, and `overcommit` permits whenever the cluster has room.
    """
    votes = [one for one in used if _VOTE not in one.use.off]
    for permits in (one for one in votes if one.use.name == "overcommit"):
        for quota in votes:
            if quota.use.name in QUOTA_PLUGINS and quota.tier > permits.tier:
                report.warn(
                    permits.mark,
                    f"plugin overcommit in tier {permits.tier} hides the quota of plugin "
                    f"{quota.use.name} in tier {quota.tier} (line {quota.mark.line}) when jobs are "
                    "enqueued: its permit ends the vote; put both into one tier",
                )
