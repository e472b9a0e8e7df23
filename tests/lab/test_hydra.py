"""Hydra multiruns on a real Slurm: our own app, and any other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from command import call, slurmkit, status, wait_ended

from slurmkit.launch.ledger import find_run

if TYPE_CHECKING:
    from slurmkit.lab.daemons import Lab

pytestmark = pytest.mark.lab

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


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """A user's Hydra app, whose own groups are called as ours are."""
    (tmp_path / "app.py").write_text(APP)
    for name, text in {
        "main.yaml": "defaults: [{resources: one_node}, {topology: any}, _self_]\nx: 1\ns: ''\n",
        "resources/one_node.yaml": "kind: mine\n",
        "resources/big.yaml": "kind: big\n",
        "topology/any.yaml": "of: mine\n",
    }.items():
        (tmp_path / "cfg" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cfg" / name).write_text(text)
    return tmp_path


def points(folder: Path) -> list[list[str]]:
    return [point["overrides"] for point in find_run("last", folder / "runs").points()]


@pytest.mark.parametrize("sweeper", ["basic", "slurmkit"])
def test_a_users_app_under_either_sweeper(lab: Lab, app: Path, sweeper: str) -> None:
    """``hydra/launcher=slurmkit`` submits one array for an app with groups of our names, and each point runs as typed."""
    words = [
        "hydra/launcher=slurmkit",
        f"hydra/sweeper={sweeper}",
        "hydra/launcher/resources=two_nodes",
        "hydra.launcher.resources.gres=gpu:1",
    ]
    done = call(
        lab, app, "python", "app.py", "-m", *words, "resources=big", "x=1,2", "s='a,b `id` $(id) \"q\"'"
    )
    assert done.returncode == 0, done.stderr
    assert wait_ended(lab, app) == ["COMPLETED", "COMPLETED"]
    log = slurmkit(lab, app, "logs", "last", "--point", "1").stdout
    assert log == 'value 2 a,b `id` $(id) "q" big 4\n' * 4, "two nodes of two ranks each"
    run = find_run("last", app / "runs")
    assert len(run.attempts()) == 1, "one job array"
    assert json.loads((run.point_dir(1) / "result.json").read_text())["value"] == {"double": 4}


def test_a_failing_point_fails_alone(lab: Lab, app: Path) -> None:
    """``hydra.launcher.wait=true`` waits; the task that raised is FAILED, the others keep their results, the exit code is 1."""
    done = call(
        lab, app, "python", "app.py", "-m", "hydra/launcher=slurmkit", "hydra.launcher.wait=true", "x=2,3"
    )
    assert done.returncode == 1
    assert "1 of 2 points did not complete: 1 FAILED" in done.stderr
    assert "Traceback" not in done.stderr
    assert [point["state"] for point in status(lab, app)] == ["COMPLETED", "FAILED"]
    run = find_run("last", app / "runs")
    assert json.loads((run.point_dir(0) / "result.json").read_text())["state"] == "finished"
    assert "three is not allowed" in json.loads((run.point_dir(1) / "result.json").read_text())["error"]


def test_a_module_and_its_config_flags_are_started_again(lab: Lab, app: Path) -> None:
    """An app run with ``python -m`` and ``--config-name`` is started in the same way for each point."""
    (app / "package").mkdir()
    (app / "package" / "__init__.py").write_text("")
    (app / "app.py").rename(app / "package" / "tool.py")
    (app / "cfg").rename(app / "package" / "cfg")
    (app / "package" / "cfg" / "other.yaml").write_text("defaults: [main, _self_]\nx: 7\n")
    done = call(
        lab,
        app,
        "python",
        "-m",
        "package.tool",
        "-m",
        "--config-name",
        "other",
        "hydra/launcher=slurmkit",
        "s=a,b",
    )
    assert done.returncode == 0, done.stderr
    assert wait_ended(lab, app) == ["COMPLETED", "COMPLETED"]
    assert slurmkit(lab, app, "logs", "last").stdout == "value 7 a mine 1\n"


def test_what_cannot_run_is_said_before_the_array(lab: Lab, app: Path) -> None:
    """Preflight holds for multiruns too: exit code 3, the launcher's key, and nothing written."""
    done = call(
        lab,
        app,
        "python",
        "app.py",
        "-m",
        "hydra/launcher=slurmkit",
        "hydra.launcher.resources.partition=lwo",
        "x=1,2",
    )
    assert done.returncode == 3
    assert "low, high" in done.stderr
    assert "mend it with: hydra.launcher.resources.partition=low" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (app / "runs").exists()


def test_our_apps_multirun_is_one_array_of_the_same_resources(lab: Lab, tmp_path: Path) -> None:
    """``python -m trainer -m`` returns without waiting, asks for what the experiment asks for, and composes nothing per point."""
    words = ["experiment=digits", "resources.time=7", "optim.lr=1e-3,3e-3", "trainer.steps=1,2"]
    done = call(lab, tmp_path, "python", "-m", "trainer", "-m", *words)
    assert done.returncode == 0, done.stderr
    assert points(tmp_path) == [
        ["optim.lr=0.001", "trainer.steps=1"],
        ["optim.lr=0.001", "trainer.steps=2"],
        ["optim.lr=0.003", "trainer.steps=1"],
        ["optim.lr=0.003", "trainer.steps=2"],
    ]
    run = Path(done.stdout.strip())
    script = (run / "job.sbatch").read_text()
    assert "#SBATCH --array=0-3\n" in script
    assert "#SBATCH --time=7\n" in script
    assert "#SBATCH --job-name=digits\n" in script
    assert not list(run.rglob("*.pkl"))


@pytest.mark.parametrize(
    ("words", "said", "hint"),
    [
        (["optim.lrr=1,2"], "optim.lrr", "optim.lr"),
        (["experiment=digits,nix"], "digits, gpt_ddp", "experiment=digits"),
        (["resources.nodes=1,2"], "resources.nodes", "one value"),
        (["optim.lr=interval(0,1)"], "interval", "name the values"),
    ],
)
@pytest.mark.parametrize(
    "program", [("python", "-m", "trainer", "-m"), ("slurmkit", "submit", "-m")], ids=["trainer", "slurmkit"]
)
def test_a_bad_sweep_fails_on_the_login_node(
    lab: Lab, tmp_path: Path, program: tuple[str, ...], words: list[str], said: str, hint: str
) -> None:
    """A misspelt key, choice or grid is one line and a hint before anything is submitted, and not a failure of each task."""
    done = call(lab, tmp_path, *program, *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert hint in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


def test_points_run_from_the_snapshot(lab: Lab, app: Path) -> None:
    """Code that is edited while a sweep waits does not change what runs; a module beside the app is found."""
    (app / "src").mkdir()
    (app / "app.py").write_text("")
    (app / "src" / "helper.py").write_text("WORD = 'as submitted'\n")
    (app / "src" / "app.py").write_text(
        "import helper\n" + APP.replace('"cfg"', '"../cfg"').replace('print("value"', "print(helper.WORD")
    )
    lab.run(["scontrol", "update", "partitionname=low", "state=down"])
    try:
        done = call(lab, app, "python", "src/app.py", "-m", "hydra/launcher=slurmkit", "s=a,b")
        assert done.returncode == 0, done.stderr
        assert "low is DOWN" in done.stderr
        (app / "src" / "helper.py").write_text("WORD = 'edited later'\n")
    finally:
        lab.run(["scontrol", "update", "partitionname=low", "state=up"])
    assert wait_ended(lab, app) == ["COMPLETED", "COMPLETED"]
    assert slurmkit(lab, app, "logs", "last").stdout == "as submitted 1 a mine 1\n"


def test_a_sweep_of_one_point(lab: Lab, app: Path) -> None:
    """``-m`` with one value for everything is a sweep of one point without overrides, and it runs."""
    done = call(lab, app, "python", "app.py", "-m", "hydra/launcher=slurmkit", "x=2")
    assert done.returncode == 0, done.stderr
    assert wait_ended(lab, app) == ["COMPLETED"]
    assert slurmkit(lab, app, "logs", "last").stdout == "value 2  mine 1\n"


def test_an_odd_folder_is_no_trouble(lab: Lab, app: Path) -> None:
    """A submission folder with blanks, commas, brackets and quotes in its name runs as any other."""
    odd = app / "it's (v1), [a] 100%"
    odd.mkdir()
    for name in ("app.py", "cfg"):
        (app / name).rename(odd / name)
    done = call(lab, odd, "python", "app.py", "-m", "hydra/launcher=slurmkit", "x=1,2")
    assert done.returncode == 0, done.stderr
    assert wait_ended(lab, odd) == ["COMPLETED", "COMPLETED"]
    assert find_run("last", odd / "runs").point_dir(1).joinpath("result.json").exists()


def test_a_command_may_be_swept(lab: Lab, tmp_path: Path) -> None:
    """``payload=command`` under -m: each point's words follow the command's own."""
    done = call(
        lab,
        tmp_path,
        "python",
        "-m",
        "trainer",
        "-m",
        "payload=command",
        "payload.command=[echo,hi]",
        "trainer.seed=1,2",
    )
    assert done.returncode == 0, done.stderr
    assert wait_ended(lab, tmp_path) == ["COMPLETED", "COMPLETED"]
    assert slurmkit(lab, tmp_path, "logs", "last", "--point", "1").stdout == "hi trainer.seed=2\n"
