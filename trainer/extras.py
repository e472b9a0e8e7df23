"""The packages that the trainer alone needs: where one is missing, that is a line and not a traceback."""

from __future__ import annotations

import importlib
import sys

from slurmkit.errors import UsageError

__all__ = ["TRAINING", "need"]

#: What a rank imports.
TRAINING = ("torch", "numpy", "h5py", "safetensors")
_NAMES = {"sklearn": "scikit-learn"}
_INSTALL = "pip install 'slurmkit-hpc[trainer]'"


def need(*modules: str) -> None:
    """Import packages, or say what to install.

    Args:
        modules: by the names that are imported, such as ``sklearn``.

    Raises:
        UsageError: for the first one that is not installed, or whose own import fails.
    """
    for module in modules:
        name = _NAMES.get(module, module)
        try:
            importlib.import_module(module)
        except (ImportError, OSError) as error:  # OSError: a shared library that is not there
            if isinstance(error, ModuleNotFoundError) and error.name == module:
                raise UsageError(
                    f"the trainer needs {name}, which is not installed for {sys.executable}", hint=_INSTALL
                ) from None
            words = " ".join(str(error).split())
            raise UsageError(
                f"the trainer needs {name}, which is installed for {sys.executable} and cannot be imported: {words}",
                hint=f"install it again: {_INSTALL}",
            ) from error
