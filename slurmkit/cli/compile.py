"""``slurmkit compile``: the script on stdout, the findings on stderr."""

from __future__ import annotations

from pathlib import Path

import click

from slurmkit.cli.options import compose_options, json_option
from slurmkit.cli.output import note, print_json, print_script


@click.command("compile")
@compose_options
@json_option
@click.option("--force", is_flag=True, help="Print the script even if it can never run here.")
def compile_command(
    overrides: tuple[str, ...], config_name: str, config_dir: Path | None, *, as_json: bool, force: bool
) -> int:
    """Print the sbatch script of an experiment, and what stands in its way on this cluster.

    The script is complete: read it, keep it, edit it, submit it with sbatch. Where there is no Slurm at all, as on
    a laptop, it is compiled without being checked.

    \b
      slurmkit compile experiment=gpt_ddp
      slurmkit compile experiment=gpt_ddp resources.nodes=4 > job.sbatch
    """  # noqa: D301 - \b is click's mark
    from slurmkit import compile_job, load_experiment, open_client  # noqa: PLC0415 - Hydra costs 0.2 s, --help none
    from slurmkit.compiler.plan import Place  # noqa: PLC0415
    from slurmkit.errors import NoCommandError  # noqa: PLC0415
    from slurmkit.launch.submit import check_plan  # noqa: PLC0415

    experiment = load_experiment(overrides, config_name, config_dir)
    try:
        snapshot = open_client().snapshot()
    except NoCommandError as error:  # a laptop: the script is for another machine
        snapshot = None
        note(f"not checked against any cluster: {error}; it may be refused there\n  hint: {error.hint}")
    plan = compile_job(experiment, snapshot, Place(cwd=str(Path.cwd())))
    if as_json:
        print_json(
            {
                "script": plan.script,
                "checked": snapshot is not None,
                "directives": plan.directives,
                "findings": [item.as_json() for item in plan.findings],
            }
        )
        return 3 if plan.impossible and not force else 0
    check_plan(plan, force=force, say=note)
    print_script(plan.script)
    return 0
