"""Where hooks and records may be: never where another could change what root runs, or where it writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmkit.errors import SlurmkitError, UsageError
from slurmkit.hooks.install import install


@pytest.mark.parametrize(
    "path", ["/opt/with blank", "/opt/star*", "/opt/quo'te", '/opt/"', "/opt/#x", "/opt/ü"]
)
def test_a_path_that_slurm_conf_cannot_hold(path: str, state: str) -> None:
    """A blank, a quote or a pattern's character would name other files than these."""
    with pytest.raises(UsageError, match=r"slurm\.conf cannot hold"):
        install(Path(path), state, site=None)


def test_a_link_on_the_way_is_named(tmp_path: Path, state: str) -> None:
    """Whoever moves a link moves what root runs: the real place is what is to be typed."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(UsageError, match="symbolic link") as caught:
        install(tmp_path / "link" / "hooks", state, site=None)
    assert caught.value.hint.startswith("for --dir, name the place itself")
    assert caught.value.hint.endswith(f" {tmp_path}/real/hooks")


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o1777])
@pytest.mark.parametrize("which", ["--dir", "--state-dir"])
def test_a_folder_that_others_may_write(tmp_path: Path, mode: int, which: str) -> None:
    """Root would run what anybody puts there, or write where anybody's link leads."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(mode)
    good, bad = tmp_path / "good", tmp_path / "open"
    folder, state = (bad, good) if which == "--dir" else (good, bad)
    harm = {"--dir": "replace what slurmd runs", "--state-dir": "lead elsewhere what slurmd writes"}[which]
    with pytest.raises(SlurmkitError, match=f"{which}: .*open .*{mode:04o}.*{harm}") as caught:
        install(folder, str(state), site=None)
    assert caught.value.hint == f"chmod go-w {bad}, or name another place with {which}"
    assert not good.exists()


def test_a_parent_that_others_may_write(tmp_path: Path, state: str) -> None:
    """They could put another folder in its place; in a sticky one, such as /tmp, they cannot."""
    above = tmp_path / "above"
    above.mkdir()
    (above / "own").mkdir()
    above.chmod(0o777)
    with pytest.raises(SlurmkitError, match="above"):
        install(above / "own", state, site=None)
    above.chmod(0o1777)
    assert install(above / "own", state, site=None).changed


@pytest.mark.parametrize("spelled", ["/{path}", "//{path}/.", "{path}/../state"])
def test_a_path_that_is_spelled_oddly_is_no_link(place: Path, state: str, spelled: str) -> None:
    """Two slashes at its beginning, a dot, or a folder up: it is taken as it is meant."""
    Path(state).mkdir()
    assert install(place, spelled.format(path=state), site=None).changed


def test_a_place_that_is_a_file(tmp_path: Path, state: str) -> None:
    """It is named, and nothing is made."""
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"file is no folder"):
        install(tmp_path / "file" / "x", state, site=None)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
