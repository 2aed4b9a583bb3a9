"""`python -m allotment_proto.schema --check | --write`: are the frozen files what the types say?"""

import argparse
import sys
from pathlib import Path

from allotment_proto import samples, schema
from allotment_proto.codec import encode


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m allotment_proto.schema", description=__doc__)
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--check", action="store_true", help="compare; exit 1 and say what differs")
    mode.add_argument(
        "--write", action="store_true", help="write schemas, and samples that are missing"
    )
    if parser.parse_args().write:
        write()
        return 0
    problems = check()
    for problem in problems:
        print(problem)
    return 1 if problems else 0


def check() -> list[str]:
    """What differs, in words, with the remedy."""
    found: list[str] = []
    for name, text in schema.documents().items():
        path = schema.FOLDER / name
        if not path.exists():
            found.append(f"{path} is missing; run: python -m allotment_proto.schema --write")
        elif path.read_text(encoding="utf-8") != text:
            found.append(
                f"{path} is not what the types say; run: python -m allotment_proto.schema --write, "
                "and read the diff"
            )
    found.extend(
        f"{samples.FOLDER / name} is missing; run: python -m allotment_proto.schema --write"
        for name in samples.values()
        if not (samples.FOLDER / name).exists()
    )
    return found


def write() -> None:
    """Schemas are replaced; a sample that exists stays as it is for ever."""
    for name, text in schema.documents().items():
        _save(schema.FOLDER / name, text.encode())
    for name, value in samples.values().items():
        if not (samples.FOLDER / name).exists():
            _save(samples.FOLDER / name, encode(value))


def _save(path: Path, content: bytes) -> None:
    if not path.exists() or path.read_bytes() != content:
        path.write_bytes(content)
        print(f"wrote {path}")


if __name__ == "__main__":
    sys.exit(main())
