"""The ``#SBATCH`` lines: which options an experiment needs, and how sbatch wants them quoted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurmkit.config.schema import Experiment

__all__ = ["Directives", "job_directives", "quote", "render"]

#: Long options of sbatch without the dashes; ``None`` marks a flag without a value.
Directives = dict[str, str | None]

# Straight copies from Resources to sbatch: the names are Slurm's own.
_COPIED = (
    "partition", "account", "qos", "nodes", "ntasks_per_node", "cpus_per_task", "cpus_per_gpu", "mem", "mem_per_cpu", "mem_per_gpu",
    "time", "gres", "gpus_per_node", "gpus_per_task", "constraint", "nodelist", "exclude", "dependency", "comment", "wckey", "mail_type", "mail_user",
)  # fmt: skip


def job_directives(experiment: Experiment, output: str, array: int | None) -> Directives:
    """Every option of the job, in the order in which a person reads them.

    Args:
        experiment: what is asked.
        output: the file for the batch script's output, Slurm's ``%`` patterns allowed.
        array: the size of the job array; ``None`` for a single run.
    """
    resources, topology = experiment.resources, experiment.topology
    options: Directives = {"job-name": experiment.name}
    for key in _COPIED:
        value = getattr(resources, key)
        if value is not None:
            options[key.replace("_", "-")] = str(value)
    options |= _flags({"exclusive": resources.exclusive})
    if topology.switches is not None:
        options["switches"] = f"{topology.switches}@{topology.wait}"
    if experiment.signal is not None:
        options["signal"] = f"{experiment.signal}@{experiment.requeue.signal_lead}"
    options["requeue" if experiment.requeue.enabled else "no-requeue"] = None
    if array is not None:
        throttle = f"%{resources.array_parallelism}" if resources.array_parallelism else ""
        options["array"] = f"0-{array - 1}{throttle}"
    options["open-mode"] = "append"
    options["output"] = output
    return options | _flags(resources.extra)


def _flags(asked: Mapping[str, Any]) -> Directives:
    """Options of any type in sbatch's form: ``true`` is a bare flag, ``false`` and ``null`` say nothing."""
    return {
        str(name).replace("_", "-"): None if value is True else str(value)
        for name, value in asked.items()
        if value is not None and value is not False
    }


def quote(value: str) -> str:
    r"""Write a value so that sbatch reads it back unchanged from an ``#SBATCH`` line.

    sbatch splits at white space, ends the line at ``#`` and takes a backslash as an escape; inside
    double quotes only ``"`` and ``\`` are special.
    """
    if value and all(character.isalnum() or character in "_-./:@%,=+[]" for character in value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def render(options: Directives) -> list[str]:
    """The lines, without ``#SBATCH``."""
    return [f"--{name}" if value is None else f"--{name}={quote(value)}" for name, value in options.items()]
