"""What install and uninstall refuse, whoever calls them: each of these would drain nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmkit.errors import SlurmkitError, SlurmUnavailableError
from slurmkit.hooks import files
from slurmkit.hooks.advice import Site, read_site
from slurmkit.hooks.install import install, uninstall
from slurmkit.hooks.settings import DEFAULT_FOLDER


def site(**options: str) -> Site:
    return read_site(options, (22, 5))


def whole(place: Path) -> bool:
    return {item.state for item in files.inspect(place)} == {"ok"}


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(
    ("prolog", "said"),
    [
        ("{place}/prolog", "Slurm still runs the hooks in .*slurm.conf: Prolog="),
        ("{place.parent}/site.sh", "cannot be said that Slurm runs no more .*site.sh:2: rm -f"),
    ],
)
def test_what_slurm_runs_or_may_run_is_not_uninstalled(
    place: Path, state: str, prolog: str, said: str, force: bool
) -> None:
    """A Prolog that nobody finds drains every node that gets a job: no force takes it away."""
    install(place, state, site=None)
    (place.parent / "site.sh").write_text(f"#!/bin/sh\nrm -f {place}/prolog\n")
    with pytest.raises(SlurmkitError, match=said) as caught:
        uninstall(place, site=site(Prolog=prolog.format(place=place)), force=force)
    assert "scontrol reconfigure" in caught.value.hint
    assert whole(place)


def test_an_uninstall_where_nobody_knows(place: Path, state: str) -> None:
    """Where Slurm could not be asked, somebody has to say that no slurm.conf names them."""
    install(place, state, site=None)
    with pytest.raises(SlurmUnavailableError, match=r"is not known: no route to head$") as caught:
        uninstall(place, site=SlurmUnavailableError("no route to head"))
    assert "--force" in caught.value.hint
    assert whole(place)
    assert uninstall(place, site=SlurmUnavailableError("no route to head"), force=True).gone
    assert not place.exists()


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_folder_that_slurm_conf_sweeps_gets_no_hooks(
    tmp_path: Path, place: Path, state: str, dry_run: bool
) -> None:
    """Slurmd would run record.bash as a Prolog: nothing is made, and force does not help."""
    with pytest.raises(SlurmkitError, match=r"--dir: slurm\.conf has Prolog=.*/slurmkit/\*") as caught:
        install(place, state, site=site(Prolog=f"{place}/*"), force=True, dry_run=dry_run)
    assert caught.value.hint.endswith(f"such as --dir {DEFAULT_FOLDER}")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_swept_is_nowhere_advised(state: str) -> None:
    """Also where it is the default."""
    with pytest.raises(SlurmkitError, match="every file there") as caught:
        install(Path(DEFAULT_FOLDER), state, site=site(Epilog=f"{DEFAULT_FOLDER}/*"), dry_run=True)
    assert DEFAULT_FOLDER not in caught.value.hint
