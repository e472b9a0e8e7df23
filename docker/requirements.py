"""``requirements.py SUITE``: what the image of a suite of Debian gets by pip, one requirement a line.

The versions are those of requirements-dev.txt, so that a cluster runs what the tests run; what the S3 server and
s3fs bring along is as it comes. Where Debian itself has PyTorch and its kin as new as the trainer wants, the image
has those.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

TOP = Path(__file__).parent.parent
#: In the image from Debian's packages, in every suite but the oldest; with what they bring along.
FROM_DEBIAN = {"torch", "numpy", "h5py", "safetensors", "scikit-learn", "scipy"}
NOT_NEEDED = {"mypy", "mypy_extensions", "ruff", "vermin", "ast_serialize", "librt"}
#: The cluster's own S3 server.
MORE = ("moto[server]==5.1.18",)


def requirements(suite: str) -> list[str]:
    """List them for one suite."""
    pinned = [
        line
        for line in (TOP / "requirements-dev.txt").read_text().splitlines()
        if re.match(r"[A-Za-z]", line)
    ]
    leave_out = NOT_NEEDED | (FROM_DEBIAN if suite != "bookworm" else set())
    kept = [line for line in pinned if line.partition("==")[0] not in leave_out]
    # What speaks to the S3 server fits the fsspec of its own version alone.
    s3fs = [line.replace("fsspec", "s3fs") for line in pinned if line.startswith("fsspec==")]
    return [*kept, *MORE, *s3fs]


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1])))
