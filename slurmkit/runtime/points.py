"""``python -m slurmkit.runtime.points POINTS_JSONL INDEX``: the index and the overrides of a point, each ended by NUL.

The batch script reads them with ``mapfile -d ''``, so that a backtick, a quote or a line break in an
override reaches the program as it was written and no shell ever reads it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from slurmkit.runtime.records import mapping_from_json

__all__ = ["read_point"]


def read_point(path: Path, index: int) -> list[str]:
    """The overrides on the line of ``points.jsonl`` whose ``index`` is the one asked.

    Raises:
        LookupError: if there is none.
        ValueError: if a line before it is no mapping of JSON.
    """
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            record = mapping_from_json(line)
            if record.get("index") == index and isinstance(record.get("overrides"), list):
                return [str(override) for override in record["overrides"]]
    raise LookupError(f"{path} has no point {index}")


def _main(argv: list[str]) -> int:
    try:
        overrides = read_point(Path(argv[1]), int(argv[2]))
    except (OSError, ValueError, LookupError) as error:
        print(f"slurmkit: {error}", file=sys.stderr)
        return 1
    # The index comes first: a point without overrides is told from a point that is not there.
    sys.stdout.write("".join(f"{word}\0" for word in (argv[2], *overrides)))
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv))
