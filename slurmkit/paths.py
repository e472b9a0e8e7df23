"""Where the files that are not Python are: in the wheel, and in an editable install or a checkout."""

from __future__ import annotations

from pathlib import Path

from slurmkit.errors import SlurmkitError

_PACKAGE = Path(__file__).resolve().parent


def data_dir(name: str) -> Path:
    """The folder of packaged data called ``name``.

    Args:
        name: ``conf``, ``sbatch_templates`` or ``prolog_epilog``.

    Returns:
        An absolute path: ``slurmkit/_data/<name>`` where slurmkit was installed from a wheel, the
        folder beside the package in a checkout (an editable install copies nothing).

    Raises:
        SlurmkitError: if neither exists, which means a damaged installation.
    """
    candidates = (_PACKAGE / "_data" / name, _PACKAGE.parent / name)
    for candidate in candidates:
        if candidate.is_dir():
            return candidate
    places = " nor ".join(str(candidate) for candidate in candidates)
    raise SlurmkitError(
        f"this installation of slurmkit is damaged: its folder {name!r} is neither {places}",
        "install slurmkit-hpc again",
    )
