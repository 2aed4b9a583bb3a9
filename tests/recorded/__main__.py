"""Records the logs that are not there yet: `python -m tests.recorded`."""

import json

from tests.recorded import MEANING, names, write_log
from tests.recorded.meaning import meaning_of
from tests.recorded.scenes import SCENES


def main() -> None:
    known = json.loads(MEANING.read_text(encoding="utf-8")) if MEANING.exists() else {}
    for name in sorted(SCENES.keys() - set(names())):
        records = SCENES[name]()
        write_log(name, records)
        known[name] = meaning_of(records)
    MEANING.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
