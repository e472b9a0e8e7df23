"""What a person gets from the wheel."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what a release is: the source archive, and the wheel that is made of it."""
    folder = tmp_path_factory.mktemp("released")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def site(released: Path) -> Path:
    """A folder with the wheel's content, as pip lays it into site-packages."""
    (wheel,) = released.glob("slurmkit_hpc-*.whl")
    shutil.unpack_archive(wheel, released / "site", "zip")
    return released / "site"


def run(site: Path, code: str, cwd: Path) -> str:
    """Run code with the wheel in front of the editable install, far away from the checkout."""
    program = f"import sys; sys.path = [{str(site)!r}] + [p for p in sys.path if p not in ({str(ROOT)!r}, {str(ROOT / 'slurmkit' / '_plugins')!r})]\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=cwd, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["conf", "sbatch_templates", "prolog_epilog"])
def test_the_wheel_brings_every_data_file(site: Path, name: str) -> None:
    """Configs, templates and hooks arrive, every file of them."""
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z", name], capture_output=True, text=True, check=True
    ).stdout
    tracked = {Path(path).relative_to(name) for path in listed.split("\0") if path}
    shipped = {
        path.relative_to(site / "slurmkit" / "_data" / name)
        for path in (site / "slurmkit" / "_data" / name).rglob("*")
        if path.is_file()
    }
    assert tracked
    assert tracked <= shipped


def test_the_source_archive_is_the_checkout(released: Path) -> None:
    """Whoever builds, tests or reads from the source archive has every tracked file but those of our CI."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, text=True, check=True)
    tracked = {path for path in listed.stdout.split("\0") if path and not path.startswith(".ci/")}
    (archive,) = released.glob("slurmkit_hpc-*.tar.gz")
    with tarfile.open(archive) as opened:
        shipped = {name.partition("/")[2] for name in opened.getnames()}
    assert {path for path in tracked if (ROOT / path).exists()} - shipped == set()


def test_an_installed_slurmkit_finds_its_data(site: Path, tmp_path: Path) -> None:
    """From the wheel alone, an experiment composes and the script renders."""
    code = (
        "from slurmkit import compile_job, load_experiment; from slurmkit.compiler.plan import Place; import slurmkit\n"
        "print(slurmkit.__file__)\n"
        "print(compile_job(load_experiment(['experiment=gpt_ddp']), None, Place(cwd='/w')).script)"
    )
    out = run(site, code, tmp_path)
    assert out.startswith(str(site))
    assert "#SBATCH --switches=1@5:00" in out


def test_hydra_finds_the_plugin_in_the_wheel(site: Path, tmp_path: Path) -> None:
    """The launcher and sweeper are found by Hydra's scan of its plugin namespace."""
    code = (
        "from hydra.core.plugins import Plugins; from hydra.plugins.launcher import Launcher; from hydra.plugins.sweeper import Sweeper\n"
        "print([c.__module__ for kind in (Launcher, Sweeper) for c in Plugins.instance().discover(kind)])"
    )
    out = run(site, code, tmp_path)
    assert "hydra_plugins.slurmkit_plugin.launcher" in out
    assert "hydra_plugins.slurmkit_plugin.sweeper" in out


def test_the_editable_install_finds_the_originals() -> None:
    """In a checkout nothing is copied: an edited config or template counts at once."""
    from slurmkit.paths import data_dir  # noqa: PLC0415

    assert data_dir("conf") == ROOT / "conf"
