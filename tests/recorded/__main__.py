"""Records all logs anew, or those that are named: `python -m tests.recorded [NAME …]`."""

import json
import sys

from tests.recorded import HERE, MEANING, write_log
from tests.recorded.meaning import meaning_of
from tests.recorded.scenes import SCENES


def main() -> None:
    known = json.loads(MEANING.read_text(encoding="utf-8")) if MEANING.exists() else {}
    wanted = sys.argv[1:] or list(SCENES)
    if not sys.argv[1:]:
        known = {}
        for path in HERE.glob("*.jsonl.gz"):
            path.unlink()
    for name in wanted:
        records = SCENES[name]()
        write_log(name, records)
        known[name] = meaning_of(records)
    MEANING.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
