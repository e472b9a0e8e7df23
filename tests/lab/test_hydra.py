"""Hydra multiruns on a real Slurm: our own app, and any other.

All of them are submitted side by side and have ended before the first test looks at what they left.
"""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pytest
from command import call, slurmkit, wait_ended, wait_idle

from slurmkit.launch.ledger import Run

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from slurmkit.lab.daemons import Lab

pytestmark = pytest.mark.lab

#: Python 3.14 reads each help text as an option is added, and one of Hydra 1.3's is no text: no ``@hydra.main``
#: starts there without these lines.
MENDED = """\
import argparse
argparse.ArgumentParser._check_help = lambda *_: None
"""
APP = """\
import os
import hydra

@hydra.main(config_path="cfg", config_name="main", version_base="1.3")
def main(cfg):
    print("value", cfg.x, cfg.s, cfg.resources.kind, os.environ["SLURM_NTASKS"])
    if cfg.x == 3:
        raise ValueError("three is not allowed")
    return {"double": cfg.x * 2}

if __name__ == "__main__":
    main()
"""
if hasattr(argparse.ArgumentParser, "_check_help"):
    APP = MENDED + APP
#: A user's Hydra app, whose own groups are called as ours are.
PROJECT = {
    "app.py": APP,
    "cfg/main.yaml": "defaults: [{resources: one_node}, {topology: any}, {size: null}, _self_]\nx: 1\ns: ''\n",
    "cfg/resources/one_node.yaml": "kind: mine\n",
    "cfg/resources/big.yaml": "kind: big\n",
    "cfg/topology/any.yaml": "of: mine\n",
    "cfg/size/small.yaml": "# @package _global_\ns: small\n",
    "cfg/size/big.yaml": "# @package _global_\ndefaults: [{override /hydra/launcher/resources: two_nodes}]\n",
}
LAUNCHER = "hydra/launcher=slurmkit"
APP_SWEEP = ("python", "app.py", "-m", LAUNCHER)
OUR_SWEEP = ("python", "-m", "trainer", "-m")


@dataclass
class Multirun:
    """What one multirun said, and where it was started."""

    folder: Path
    done: subprocess.CompletedProcess[str]

    @property
    def run(self) -> Run:
        assert self.done.returncode == 0, self.done.stderr
        return Run(self.done.stdout.rstrip("\n"))

    def refused(self, code: int, *said: str) -> None:
        """It ended with a line and a hint, and nothing was written."""
        assert self.done.returncode == code, self.done.stderr
        assert "Traceback" not in self.done.stderr
        assert [text for text in said if text not in self.done.stderr] == [], self.done.stderr
        assert not (self.folder / "runs").exists()


def project(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def multirun(lab: Lab, folder: Path, argv: tuple[str, ...], files: dict[str, str] = PROJECT) -> Multirun:
    return Multirun(folder, call(lab, project(folder, files), *argv))


def module(lab: Lab, folder: Path) -> Multirun:
    files = {f"package/{name}".replace("app.py", "tool.py"): text for name, text in PROJECT.items()}
    files |= {"package/__init__.py": "", "package/cfg/other.yaml": "defaults: [main, _self_]\nx: 7\n"}
    argv = ("python", "-m", "package.tool", "-m", "--config-name", "other", LAUNCHER, "s=a,b")
    return multirun(lab, folder, argv, files)


def edited(lab: Lab, folder: Path) -> Multirun:
    """A sweep that waits for its partition while its code is edited."""
    text = APP.replace('"cfg"', '"../cfg"').replace('print("value"', "print(helper.WORD")
    helper = "src/helper.py"
    files = {
        **PROJECT,
        "app.py": "",
        "src/app.py": f"import helper\n{text}",
        helper: "WORD = 'as submitted'\n",
    }
    lab.run(["scontrol", "update", "partitionname=high", "state=down"])
    try:
        argv = ("python", "src/app.py", "-m", LAUNCHER, "hydra.launcher.resources.partition=high", "s=a,b")
        found = multirun(lab, folder, argv, files)
        project(folder, {helper: "WORD = 'edited later'\n"})
    finally:
        lab.run(["scontrol", "update", "partitionname=high", "state=up"])
    return found


def held(lab: Lab, folder: Path) -> Multirun:
    """A sweep of ours that never starts."""
    words = ("experiment=digits", "resources.time=7", "+resources.extra.hold=true")
    found = multirun(lab, folder, (*OUR_SWEEP, *words, "optim.lr=1e-3,3e-3", "trainer.steps=1,2"), {})
    lab.run(["scancel", "--name=digits"])
    return found


#: A comment with all that sbatch reads in a ``#SBATCH`` line, and how Hydra takes it.
COMMENT = """it's #1, "a" \\b $(id) `id`"""
COMMENT_WORD = 'hydra.launcher.resources.comment="' + COMMENT.replace('"', '\\"') + '"'
HOSTILE = ("resources=big", "+tag=1e-3", "x=1,2", "s='a,b `id` $(id) \"q\"'")
#: How many ranks a node each sweeper's points have.
RANKS = {"basic": 2, "slurmkit": 1}
#: Bad sweeps of our own apps: the words, what is said, and what to type instead.
BAD = {
    "key": (["optim.lrr=1,2"], "optim.lrr", "optim.lr"),
    "fixed": (
        ["optim.lrr=1", "model=gpt,mlp"],
        "there is no config key 'optim.lrr'",
        "did you mean optim.lr",
    ),
    "added": (["+resources.nods=2", "optim.lr=1,2"], "'resources.nods'", "did you mean resources.nodes?"),
    "choice": (["model=gpt,gtp"], "model: got 'gtp'; accepted are gpt, mlp", "did you mean model=gpt?"),
    "shared": (["resources.nodes=1,2"], "resources.nodes=2: resources.nodes would be 2", "one value"),
    "interval": (["optim.lr=interval(0,1)"], "interval", "name the values"),
}
ODD = "it's (v1), [a] 100%"
MULTIRUNS: dict[str, Callable[[Lab, Path], Multirun]] = {
    **{
        f"users-{sweeper}": partial(
            multirun,
            argv=(
                *APP_SWEEP,
                f"hydra/sweeper={sweeper}",
                "hydra/launcher/resources=two_nodes",
                f"hydra.launcher.resources.ntasks_per_node={ranks}",
                "hydra.launcher.resources.gres=gpu:1",
                COMMENT_WORD,
                *HOSTILE,
            ),
        )
        for sweeper, ranks in RANKS.items()
    },
    "sizes": partial(multirun, argv=(*APP_SWEEP, "size=small,big")),
    "failing": partial(multirun, argv=(*APP_SWEEP, "hydra.launcher.wait=true", "x=2,3")),
    "module": module,
    "nowhere": partial(multirun, argv=(*APP_SWEEP, "hydra.launcher.resources.partition=lwo", "x=1,2")),
    "edited": edited,
    "one": partial(multirun, argv=(*APP_SWEEP, "hydra.launcher.env.vars.RATE=1e-3", "x=2")),
    ODD: partial(multirun, argv=(*APP_SWEEP, "x=1,2")),
    "command": partial(
        multirun, argv=(*OUR_SWEEP, "payload=command", "payload.command=[echo,hi,1e-3]", "+lr=1e-3,true"), files={}
    ),
    "held": held,
    **{
        f"bad-{name}": partial(multirun, argv=(*OUR_SWEEP, *words), files={})
        for name, (words, _, _) in BAD.items()
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def multiruns(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Multirun]:
    """Every multirun by its name; the jobs of all of them have ended."""
    top = tmp_path_factory.mktemp("hydra")
    with ThreadPoolExecutor(4) as pool:
        started = {name: pool.submit(start, lab, top / name) for name, start in MULTIRUNS.items()}
        found = {name: future.result() for name, future in started.items()}
    wait_idle(lab)
    return found


def states(lab: Lab, found: Multirun) -> list[str]:
    return wait_ended(lab, found.folder)


@pytest.mark.parametrize("sweeper", RANKS)
def test_a_users_app_under_either_sweeper(lab: Lab, multiruns: dict[str, Multirun], sweeper: str) -> None:
    """``hydra/launcher=slurmkit`` submits one array for an app with groups of our names, and each point runs as typed."""
    found = multiruns[f"users-{sweeper}"]
    run = found.run
    assert states(lab, found) == ["COMPLETED", "COMPLETED"]
    log = (run.point_dir(1) / "log").read_text()
    ranks = 2 * RANKS[sweeper]
    assert log == f'value 2 a,b `id` $(id) "q" big {ranks}\n' * ranks, "two nodes"
    assert [point["overrides"] for point in run.points()] == [["x=1"], ["x=2"]]
    (attempt,) = run.attempts()
    listed = lab.run(["squeue", "--noheader", "--states=all", f"--jobs={attempt.job_id}", "--format=%k"])
    assert set(listed.stdout.strip().splitlines()) == {COMMENT}, "as sbatch read it from its line"
    assert attempt.differences == ()
    assert json.loads((run.point_dir(1) / "result.json").read_text())["value"] == {"double": 4}


def test_a_users_choice_that_needs_another_job_is_refused(multiruns: dict[str, Multirun]) -> None:
    """A group of the app that also picks resources of the launcher would run in the shape of the first point."""
    key = "hydra.launcher.resources.nodes"
    multiruns["sizes"].refused(2, f"size=big: {key} would be 2", f"give {key} one value")


def test_a_failing_point_fails_alone(lab: Lab, multiruns: dict[str, Multirun]) -> None:
    """``hydra.launcher.wait=true`` waits; the task that raised is FAILED, the others keep their results, the exit code is 1."""
    found = multiruns["failing"]
    assert found.done.returncode == 1
    assert "1 of 2 points did not complete: 1 FAILED" in found.done.stderr
    assert "Traceback" not in found.done.stderr
    assert states(lab, found) == ["COMPLETED", "FAILED"]
    run = Run(found.done.stdout.rstrip("\n"))
    assert json.loads((run.point_dir(0) / "result.json").read_text())["state"] == "finished"
    assert "three is not allowed" in json.loads((run.point_dir(1) / "result.json").read_text())["error"]


def test_a_module_and_its_config_flags_are_started_again(lab: Lab, multiruns: dict[str, Multirun]) -> None:
    """An app run with ``python -m`` and ``--config-name`` is started in the same way for each point."""
    found = multiruns["module"]
    assert states(lab, found) == ["COMPLETED", "COMPLETED"]
    assert (found.run.point_dir(0) / "log").read_text() == "value 7 a mine 1\n"


def test_what_cannot_run_is_said_before_the_array(multiruns: dict[str, Multirun]) -> None:
    """Preflight holds for multiruns too: exit code 3, the launcher's key, and nothing written."""
    mend = "mend it with: hydra.launcher.resources.partition=low"
    multiruns["nowhere"].refused(3, "low, high", mend)


def test_our_apps_multirun_is_one_array_of_the_same_resources(multiruns: dict[str, Multirun]) -> None:
    """``python -m trainer -m`` returns without waiting, asks for what the experiment asks for, and composes nothing per point."""
    run = multiruns["held"].run
    assert [point["overrides"] for point in run.points()] == [
        ["optim.lr=1e-3", "trainer.steps=1"],
        ["optim.lr=1e-3", "trainer.steps=2"],
        ["optim.lr=3e-3", "trainer.steps=1"],
        ["optim.lr=3e-3", "trainer.steps=2"],
    ]
    script = (run.path / "job.sbatch").read_text()
    assert "#SBATCH --array=0-3\n" in script
    assert "#SBATCH --time=7\n" in script
    assert "#SBATCH --job-name=digits\n" in script
    assert not list(run.path.rglob("*.pkl"))


@pytest.mark.parametrize("name", BAD)
def test_a_bad_sweep_fails_on_the_login_node(
    lab: Lab, multiruns: dict[str, Multirun], tmp_path: Path, name: str
) -> None:
    """A misspelt key, choice or grid, and a point of another job, are one line and a hint before anything is submitted."""
    words, *said = BAD[name]
    multiruns[f"bad-{name}"].refused(2, *said)
    again = slurmkit(lab, tmp_path, "submit", "-m", *words, code=2)
    assert [text for text in said if text not in again.stderr] == []
    assert not (tmp_path / "runs").exists()


def test_points_run_from_the_snapshot(lab: Lab, multiruns: dict[str, Multirun]) -> None:
    """Code that is edited while a sweep waits does not change what runs; a module beside the app is found."""
    found = multiruns["edited"]
    assert "high is DOWN" in found.done.stderr
    assert states(lab, found) == ["COMPLETED", "COMPLETED"]
    assert (found.run.point_dir(0) / "log").read_text() == "as submitted 1 a mine 1\n"


def test_a_sweep_of_one_point(lab: Lab, multiruns: dict[str, Multirun]) -> None:
    """``-m`` with one value for everything is a sweep of one point without overrides; variables arrive as typed."""
    found = multiruns["one"]
    assert states(lab, found) == ["COMPLETED"]
    assert (found.run.point_dir(0) / "log").read_text() == "value 2  mine 1\n"
    assert "\nexport RATE=1e-3\n" in (found.run.path / "job.sbatch").read_text()


def test_an_odd_folder_is_no_trouble(lab: Lab, multiruns: dict[str, Multirun]) -> None:
    """A submission folder with blanks, commas, brackets and quotes in its name runs as any other."""
    found = multiruns[ODD]
    assert states(lab, found) == ["COMPLETED", "COMPLETED"]
    assert (found.run.point_dir(1) / "result.json").exists()


def test_a_command_may_be_swept(lab: Lab, multiruns: dict[str, Multirun]) -> None:
    """``payload=command`` under -m: each point's words follow the command's own, all of them as typed."""
    found = multiruns["command"]
    assert states(lab, found) == ["COMPLETED", "COMPLETED"]
    logs = [(found.run.point_dir(point) / "log").read_text() for point in (0, 1)]
    assert logs == ["hi 1e-3 +lr=1e-3\n", "hi 1e-3 +lr=true\n"]
