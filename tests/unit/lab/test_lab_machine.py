"""What a lab needs of the machine."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from slurmkit.errors import LabError, MissingProgramError
from slurmkit.lab import machine
from slurmkit.lab.ports import claim, free_ports


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"SLURMKIT_LAB_DIR": "/a", "XDG_STATE_HOME": "/b", "HOME": "/c"}, "/a"),
        ({"XDG_STATE_HOME": "/b", "HOME": "/c"}, "/b/slurmkit/labs"),
        ({"XDG_STATE_HOME": "b", "HOME": "/c"}, "/c/.local/state/slurmkit/labs"),  # XDG: relative is invalid
        ({"HOME": "/c"}, "/c/.local/state/slurmkit/labs"),
    ],
)
def test_labs_live_where_the_user_says(environ: dict[str, str], folder: str) -> None:
    """SLURMKIT_LAB_DIR wins over XDG_STATE_HOME, that over the home."""
    assert machine.labs_folder(environ) == Path(folder)


def test_the_environment_of_a_lab_has_no_outer_slurm() -> None:
    """What would mislead Slurm's commands is left out, the rest stays, and /usr/sbin is found."""
    outer = {
        "SLURM_CONF": "/etc/slurm.conf",
        "SLURM_JOB_ID": "1",
        "SBATCH_ACCOUNT": "a",
        "SQUEUE_FORMAT": "%i",
        "SLURMKIT_LAB_DIR": "/labs",
        "PATH": "/opt/bin:/usr/bin",
    }
    found = machine.lab_environment(outer, Path("/labs/x/etc/slurm.conf"))
    assert found.keys() == {"SLURM_CONF", "SLURMKIT_LAB_DIR", "PATH"}
    assert found["SLURM_CONF"] == "/labs/x/etc/slurm.conf"
    assert found["PATH"].startswith("/opt/bin:/usr/bin:")
    assert "/usr/sbin" in found["PATH"].split(":")


def executable(path: Path, text: str = "#!/bin/sh\n") -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def test_a_missing_program_is_named_with_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names each missing program and its package, and the hint is one command."""
    for program in ("slurmctld", "sinfo", "squeue", "scontrol", "munged"):
        executable(tmp_path / program)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(machine, "_SYSTEM_PATH", str(tmp_path))
    with pytest.raises(MissingProgramError) as caught:
        machine.find_programs(accounting=True)
    assert caught.value.message == (
        "a lab needs slurmd (package slurmd), slurmdbd (package slurmdbd), sacct (package slurm-client), "
        "sacctmgr (package slurm-client), mariadbd (package mariadb-server), "
        "mariadb-install-db (package mariadb-server)"
    )
    assert caught.value.hint.endswith("apt-get install slurmd slurmdbd slurm-client mariadb-server")


def test_daemons_outside_an_ordinary_path_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ordinary user's PATH lacks /usr/sbin: the daemons are looked for there all the same."""
    for program in ("slurmctld", "slurmd", "sinfo", "squeue", "scontrol", "munged"):
        executable(tmp_path / program)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(machine, "_SYSTEM_PATH", str(tmp_path))
    assert machine.find_programs(accounting=False)["slurmctld"] == str(tmp_path / "slurmctld")


@pytest.mark.parametrize(
    ("words", "release"),
    [("slurm-wlm 22.05.8", (22, 5)), ("slurm 24.11.5", (24, 11)), ("slurm-wlm 26.05.5-1+b1", (26, 5))],
)
def test_the_release_is_read_from_slurmctld(tmp_path: Path, words: str, release: tuple[int, int]) -> None:
    """Debian's and SchedMD's spelling of `slurmctld -V` are both read."""
    assert machine.read_release(executable(tmp_path / "slurmctld", f"#!/bin/sh\necho {words}\n")) == release


def test_a_slurmctld_that_does_not_run_is_told(tmp_path: Path) -> None:
    """Its own words are in the error."""
    broken = executable(tmp_path / "slurmctld", "#!/bin/sh\necho no libslurm >&2; exit 127\n")
    with pytest.raises(LabError) as caught:
        machine.read_release(broken)
    assert "no libslurm" in caught.value.detail


def test_sockets_of_a_deep_lab_lie_elsewhere(tmp_path: Path) -> None:
    """A long root gets a private folder in which the longest socket fits."""
    deep = tmp_path / ("d" * 90)
    deep.mkdir()
    run = machine.run_folder(deep)
    try:
        assert deep not in run.parents
        assert len(f"{run}/spool/n64/n64_4294967295.4294967295.4294967295") <= 107
        assert stat.S_IMODE(run.stat().st_mode) in ({0o755} if os.geteuid() == 0 else {0o700})
    finally:
        run.rmdir()


def test_each_fake_gpu_is_a_character_device_of_its_own_name(tmp_path: Path) -> None:
    """Slurm takes nothing else, and repeats no name; the number is the index in CUDA_VISIBLE_DEVICES."""
    devices = machine.fake_gpus(tmp_path / "dev", 4)
    assert [Path(device).name for device in devices] == ["gpu0", "gpu1", "gpu2", "gpu3"]
    assert all(Path(device).is_char_device() for device in devices)


def test_a_host_without_an_address_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the host's own name does not resolve, up says so before srun hangs."""

    def unknown(*_: object) -> None:
        raise socket.gaierror

    assert machine.own_name_resolves()
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert not machine.own_name_resolves()


def test_a_claim_is_held_by_one_and_let_go() -> None:
    """While a block holds something nobody else gets it; afterwards it is free."""
    with claim("a thing") as first, claim("a thing") as second, claim("another") as third:
        assert (first, second, third) == (True, False, True)
    with claim("a thing") as again:
        assert again


def test_ports_in_use_and_ports_of_a_starting_lab_are_passed_over() -> None:
    """Two starts at one moment get different ports, and none that somebody listens on."""
    with free_ports(10) as one, free_ports(10) as two:
        assert abs(one - two) >= 10
    with socket.socket() as busy:
        busy.bind(("", one + 9))
        busy.listen()
        with free_ports(10) as now:
            assert now != one
