"""By which rules rounds are made (`Decided.rules`). A rule that changes what a round says, or what
the fold makes of that, gets a number of its own, and old decisions keep theirs.
"""

from allotment_proto.decided import BEHIND_TRIED_AGAIN

LET_IN_UNASKED = BEHIND_TRIED_AGAIN + 1
"""From these rules on groups are let in without a vote where the policy lacks `enqueue`. Before, it
let none in, and what makes a group's pods waited for ever."""

QUOTA_KEPT = LET_IN_UNASKED + 1
"""From these rules on what queues hold beyond their guarantees, taken together, leaves every
guarantee untouched; and whatever plugins of earlier tiers say, no queue is made to give back what
it deserves. Before, each queue was held to that alone, and quota plugins behind others not asked.
"""

RUNNING_GANGS_FIRST = QUOTA_KEPT + 1
"""From these rules on what a group that runs lacks of its minimum comes before groups, of equal
priority, of which nothing runs yet."""

RULES = RUNNING_GANGS_FIRST
"""The newest, by which new decisions are made."""
