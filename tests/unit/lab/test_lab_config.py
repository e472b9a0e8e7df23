"""The configuration of a lab: golden text for each release, and what a shape may be.

Renew the golden files with: python -m pytest tests/unit/lab --renew-golden
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from slurmkit.errors import ConfigError
from slurmkit.lab.config import LabShape, LabSpec, lab_files
from slurmkit.lab.places import hosts

if TYPE_CHECKING:
    from collections.abc import Callable


def spec(release: tuple[int, int] = (22, 5), **shape: object) -> LabSpec:
    made = LabShape(**shape)
    return LabSpec(
        shape=made,
        root="/labs/lab",
        run="/labs/lab/run",
        release=release,
        user="alice",
        port=20000,
        devices=tuple(f"/labs/lab/dev/gpu{number}" for number in range(made.gpus)),
    )


def as_one_text(files: dict[str, str]) -> str:
    return "\n".join(f"==> {path} <==\n{text}" for path, text in files.items())


@pytest.mark.parametrize("release", [(22, 5), (24, 11), (26, 5)], ids=["22.05", "24.11", "26.05"])
def test_default_lab_of_each_release(release: tuple[int, int], golden: Callable[[str, str], None]) -> None:
    """Every file of the default lab is what it was. Renew: python -m pytest tests/unit/lab --renew-golden."""
    golden(f"lab/{release[0]}.{release[1]:02}.conf", as_one_text(lab_files(spec(release))))


def test_lab_of_another_shape(golden: Callable[[str, str], None]) -> None:
    """Accounting, an odd leaf, no GPUs, and our own lines last. Renew: as above."""
    shape = {"name": "odd", "nodes": 5, "leaf": 2, "gpus": 0, "accounting": True, "user_signal": True}
    golden("lab/odd-shape.conf", as_one_text(lab_files(spec(**shape, extra="MaxArraySize=20001\n"))))


@pytest.mark.parametrize(
    ("release", "line"),
    [
        ((22, 5), "SlurmctldParameters=preempt_send_user_signal"),
        ((24, 11), "PreemptParameters=send_user_signal"),
        ((26, 5), "PreemptParameters=send_user_signal"),
    ],
)
def test_user_signal_is_spelled_for_the_release(release: tuple[int, int], line: str) -> None:
    """The switch is off unless asked, and written where that release reads it."""
    assert line in lab_files(spec(release, user_signal=True))["etc/slurm.conf"].splitlines()
    assert "send_user_signal" not in lab_files(spec(release))["etc/slurm.conf"]


def test_one_node_is_no_range() -> None:
    """n1 alone is written n1, its port too: Slurm refuses n[1-1] in places."""
    files = lab_files(spec(nodes=1, leaf=1, gpus=1))
    assert "NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port=20002 " in files["etc/slurm.conf"]
    assert files["etc/topology.conf"] == "SwitchName=leaf1 Nodes=n1\nSwitchName=spine Switches=leaf1\n"


def test_a_database_is_configured_only_with_accounting() -> None:
    """Without accounting nothing asks for slurmdbd; without GPUs there is no gres.conf."""
    assert "etc/slurmdbd.conf" not in lab_files(spec())
    assert "AccountingStorageType=accounting_storage/none" in lab_files(spec())["etc/slurm.conf"]
    assert "etc/gres.conf" not in lab_files(spec(gpus=0))


@pytest.mark.parametrize("name", ["", "A", "-a", "a_b", "a" * 21, "../x", "a b"])
def test_a_name_that_is_no_name_is_refused(name: str) -> None:
    """The error repeats the name and says what is accepted."""
    with pytest.raises(ConfigError) as caught:
        LabShape(name=name)
    assert repr(name) in caught.value.message
    assert "a-z, 0-9 and -" in caught.value.hint


@pytest.mark.parametrize(
    ("shape", "accepted"),
    [
        ({"nodes": 0}, "1 to 64"),
        ({"nodes": 65}, "1 to 64"),
        ({"gpus": -1}, "0 to 16"),
        ({"leaf": 0}, "1 to 64"),
    ],
)
def test_a_number_out_of_range_is_refused(shape: dict[str, int], accepted: str) -> None:
    """The error names the option, the value and the range."""
    (option, value), *_ = shape.items()
    with pytest.raises(ConfigError) as caught:
        LabShape(**shape)
    assert f"--{option}: {value} " in caught.value.message
    assert accepted in caught.value.hint


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"release": (21, 8)}, "Slurm 21.08 is older"),
        ({"devices": ("/dev/null",) * 4}, "1 distinct ones for 4 GPUs"),
        ({"root": "/home/a b"}, "cannot read the path '/home/a b'"),
        ({"run": "relative"}, "cannot read the path 'relative'"),
        ({"port": 80}, "port: 80"),
        ({"port": 65530}, "port: 65530"),
    ],
)
def test_a_place_that_cannot_work_is_refused(change: dict[str, object], words: str) -> None:
    """What slurmctld would die of is said before it starts."""
    with pytest.raises(ConfigError, match=words):
        replace(spec(), **change)


@pytest.mark.parametrize("release", [(22, 5), (24, 11), (26, 5)], ids=["22.05", "24.11", "26.05"])
def test_lab_of_hosts_of_each_release(release: tuple[int, int], golden: Callable[[str, str], None]) -> None:
    """With a host for each daemon only what depends on that differs. Renew: as above."""
    places = hosts(8, 2, password="secret", jwt_key="/etc/slurm/jwt.key", programs="/site")  # noqa: S106
    made = lab_files(spec(release, accounting=True, user_signal=True), places)
    golden(f"lab/hosts-{release[0]}.{release[1]:02}.conf", as_one_text(made))


def test_slurmctld_parameters_are_one_line() -> None:
    """Slurmctld takes the last of two such lines: what hosts need and what a user's signal needs share one."""
    places = hosts(8, 2, password="", jwt_key="/key", programs="/site")
    conf = lab_files(spec((22, 5), accounting=True, user_signal=True), places)["etc/slurm.conf"]
    lines = [line for line in conf.splitlines() if line.startswith("SlurmctldParameters=")]
    assert lines == ["SlurmctldParameters=enable_configless,cloud_dns,preempt_send_user_signal"]
