"""``python -m trainer.data prepare``: the two files of the examples, from what Python packages ship.

No torch here: what makes the files is a second's work.
"""

# ruff: noqa: PLC0415 - a package that is missing is a line, so none is imported before it was looked for

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmkit.errors import SlurmkitError
from trainer.extras import need

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["main", "prepare"]


def prepare(out: Path) -> list[Path]:
    """Write ``text.h5`` and ``digits.h5`` from what Python and scikit-learn ship.

    Args:
        out: the folder; it is made if missing.

    Returns:
        The files.

    Raises:
        UsageError: if a package is missing.
        OSError: as the system gave it.
    """
    need("numpy", "h5py", "sklearn")
    from pydoc_data.topics import topics

    import numpy as np
    from sklearn.datasets import load_digits

    text = "\n\n".join(f"{name}\n{topics[name]}" for name in sorted(topics)).encode()
    digits = load_digits()
    out.mkdir(parents=True, exist_ok=True)
    tokens = np.frombuffer(text, np.uint8)
    return [
        _write_h5(
            out / "text.h5", {"tokens": tokens}, f"pydoc_data.topics of Python {sys.version.split()[0]}"
        ),
        _write_h5(
            out / "digits.h5",
            {"x": (digits.data / 16).astype(np.float32), "y": digits.target.astype(np.int64)},
            "sklearn.datasets.load_digits",
        ),
    ]


def _write_h5(path: Path, arrays: dict[str, NDArray[Any]], source: str) -> Path:
    import h5py
    import numpy as np

    digest = hashlib.sha256()
    temp = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with h5py.File(temp, "w") as file:
            for name, array in arrays.items():
                file.create_dataset(name, data=array)
                digest.update(name.encode() + np.ascontiguousarray(array).tobytes())
            file.attrs["source"] = source
            file.attrs["sha256"] = digest.hexdigest()
        temp.replace(path)
    finally:
        temp.unlink(missing_ok=True)
    return path


def main(argv: Sequence[str] | None = None) -> int:
    """The command line.

    Args:
        argv: the arguments; None for those of the process.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(prog="python -m trainer.data", description=__doc__.split("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("prepare", help="write text.h5 and digits.h5 from what Python packages ship")
    make.add_argument(
        "--out", type=Path, default=Path("data"), metavar="DIR", help="the folder (default: data)"
    )
    arguments = parser.parse_args(argv)
    try:
        for path in prepare(arguments.out):
            print(path)
    except (SlurmkitError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        if isinstance(error, SlurmkitError):
            print(f"hint: {error.hint}", file=sys.stderr)
            return error.exit_code
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
