"""What `deploy/METRICS.md` says of each metric."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROW = re.compile(
    r"\| `(?P<name>[\w{},]+)` \| (?P<kind>\w+) \| (?P<labels>[^|]*)\| (?P<where>[^|]*) \|"
)


def documented() -> dict[str, dict[str, str]]:
    """By name: `kind`, `labels` and `where`, as they are written."""
    text = (ROOT / "deploy" / "METRICS.md").read_text()
    found = {}
    for row in ROW.finditer(text):
        start, _, rest = row["name"].partition("{")
        words, _, end = rest.partition("}")
        for word in words.split(","):
            found[f"{start}{word}{end}"] = row.groupdict()
    return found
