"""A site whose plugins rewrite and refuse jobs: real Lua in a real slurmctld and a real sbatch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from command import ONE, command, folders, slurmkit, status, wait_ended

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurmkit.lab.daemons import Lab

pytestmark = pytest.mark.lab

JOB_SUBMIT = """
function slurm_job_submit(job, partitions, uid)
  if job.partition == "closed" then
    slurm.log_user("closed is closed on Mondays")
    return slurm.ERROR
  end
  if job.partition == "anywhere" then job.partition = "high" end
  if job.time_limit ~= slurm.NO_VAL and job.time_limit > 60 then job.time_limit = 60 end
  return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, uid) return slurm.SUCCESS end
return slurm.SUCCESS
"""
CLI_FILTER = """
function slurm_cli_setup_defaults(options, early) return slurm.SUCCESS end
function slurm_cli_pre_submit(options, pack)
  print("Welcome, says the filter")
  if options["nodes"] == "9" then options["nodes"] = "2" end
  options["comment"] = "billed to physics"
  return slurm.SUCCESS
end
function slurm_cli_post_submit(offset, job, step) return slurm.SUCCESS end
return slurm.SUCCESS
"""
JOB = (*ONE, command("hostname"))
#: What no plain lab of two nodes can run; the two plugins make a sound job of the first three.
WISHES = ("resources.partition=anywhere", "resources.nodes=9", "resources.time=5:00:00")


@pytest.fixture(scope="module")
def site(start_lab: Callable[..., Lab]) -> Lab:
    """A lab of two nodes with a job_submit and a cli_filter of its own."""
    lab = start_lab(nodes=2)
    for name, text in {"job_submit.lua": JOB_SUBMIT, "cli_filter.lua": CLI_FILTER}.items():
        (lab.conf.parent / name).write_text(text)
    with lab.conf.open("a") as conf:
        conf.write("JobSubmitPlugins=lua\nCliFilterPlugins=lua\n")
    lab.run(["scontrol", "reconfigure"])
    return lab


def test_nothing_is_impossible_where_a_plugin_may_rewrite_the_job(site: Lab, tmp_path: Path) -> None:
    """What stops elsewhere is unknown here: exit code 0, a script, and the plugins by name."""
    wishes = [*JOB, *WISHES, "resources.gres=gpu:A100:9"]
    done = slurmkit(site, tmp_path, "compile", *wishes)
    lines = done.stderr.splitlines()
    assert lines
    assert {line.partition(":")[0] for line in lines} == {"unknown"}
    assert all("this site's job_submit/lua, cli_filter/lua may rewrite the job" in line for line in lines)
    assert done.stdout.startswith("#!")
    findings = json.loads(slurmkit(site, tmp_path, "compile", *wishes, "--json").stdout)["findings"]
    assert {item["verdict"] for item in findings} == {"unknown"}


def test_what_a_plugin_made_of_the_job_is_said_and_kept(site: Lab, tmp_path: Path) -> None:
    """Partition, time (job_submit), nodes and comment (cli_filter): each difference is a line and a record.

    The filter prints into ``sbatch --parsable``, and the job is known by its id all the same.
    """
    done = slurmkit(site, tmp_path, "submit", *JOB, *WISHES, "resources.comment=mine")
    took = [line for line in done.stderr.splitlines() if line.startswith("Slurm took")]
    assert [line.replace(" 2-2;", " 2;") for line in took] == [  # 2-2 is 2 of a job that waits
        "Slurm took --partition as high; asked was anywhere",
        "Slurm took --nodes as 2; asked was 9",
        "Slurm took --time as 01:00:00; asked was 5:00:00",
        "Slurm took --comment as billed to physics; asked was mine",
    ]
    attempt = json.loads((Path(done.stdout.strip()) / "attempts" / "0001.json").read_text())
    kept = [
        f"Slurm took {item['option']} as {item['got']}; asked was {item['asked']}"
        for item in attempt["differences"]
    ]
    assert kept == took
    assert wait_ended(site, tmp_path) == ["COMPLETED"]
    assert status(site, tmp_path, attempt["job_id"])[0]["nodes"] == "n[1-2]"


def test_what_a_plugin_refuses_is_an_error_in_its_own_words(site: Lab, tmp_path: Path) -> None:
    """Exit code 1 with the site's words, no traceback, and no run folder."""
    done = slurmkit(site, tmp_path, "submit", *JOB, "resources.partition=closed", code=1)
    assert "closed is closed on Mondays" in done.stderr
    assert folders(tmp_path) == []
