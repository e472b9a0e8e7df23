"""The schema refuses what Slurm would refuse, and names the override that mends it."""

from __future__ import annotations

import pytest

from slurmkit.config.schema import (
    Env,
    Experiment,
    Payload,
    Requeue,
    Resources,
    Snapshot,
    Topology,
    each_gpu,
    mounted,
)
from slurmkit.errors import ConfigError


@pytest.mark.parametrize(
    ("kind", "values", "key"),
    [
        (Resources, {"nodes": 0}, "resources.nodes"),
        (Resources, {"time": "90m"}, "resources.time"),
        (Resources, {"mem": "16GiB"}, "resources.mem"),
        (Resources, {"mem": "1G", "mem_per_cpu": "1G"}, "mem_per_cpu"),
        (Resources, {"mem": "16B"}, "resources.mem"),
        (Resources, {"cpus_per_gpu": 2, "cpus_per_task": 1}, "resources.cpus_per_task=null"),
        (Resources, {"gres": "gpu:"}, "resources.gres"),
        (Resources, {"gres": "gpu:a:b:c"}, "resources.gres"),
        (Resources, {"gpus_per_node": "gpu:a100:2"}, "resources.gpus_per_node"),
        (Resources, {"gpus_per_task": "a100:"}, "resources.gpus_per_task"),
        (Resources, {"partition": "low\n#SBATCH --uid=0"}, "resources.partition"),
        (Resources, {"extra": {"nodes": 3}}, "resources.nodes"),
        (Resources, {"extra": {"open-mode": "truncate"}}, "resources.extra.open-mode"),
        (Resources, {"extra": {"nice": "1\n2"}}, "resources.extra.nice"),
        (Resources, {"extra": {"--nice": 1}}, "resources.extra"),
        (Topology, {"switches": 0}, "topology.switches"),
        (Topology, {"wait": "5m"}, "topology.wait"),
        (Requeue, {"signal": "usr1; rm"}, "requeue.signal"),
        (Requeue, {"signal_lead": -1}, "requeue.signal_lead"),
        (Env, {"vars": {"A-B": "1"}}, "env.vars"),
        (Payload, {"kind": "command"}, "payload.command"),
        (Payload, {"kind": "function"}, "payload.command"),
        (Payload, {"kind": "magic"}, "payload.kind"),
        (Snapshot, {"max_mb": 0}, "snapshot.max_mb"),
        (Resources, {"comment": "a\tb"}, "resources.comment"),
        (Experiment, {"name": "a\nb"}, "name"),
        (Experiment, {"name": "a\x1b[31mb"}, "name"),
        (Experiment, {"name": "a\x85b"}, "name"),
        (Experiment, {"name": "caf\udce9"}, "name"),
        (Experiment, {"name": "  "}, "name"),
    ],
)
def test_bad_values_are_refused_with_their_key(kind: type, values: dict[str, object], key: str) -> None:
    """No bad value gets past construction; the message names its key and the hint what to type."""
    with pytest.raises(ConfigError) as caught:
        kind(**values)
    assert key in caught.value.message + caught.value.hint
    assert caught.value.hint


def test_cpus_per_gpu_can_be_asked() -> None:
    """By default nothing is asked that excludes it, and mem with cpus_per_task is no pair."""
    assert Resources(cpus_per_gpu=2).cpus_per_task is None
    assert Resources(cpus_per_task=2, mem="1G").mem == "1G"


@pytest.mark.parametrize(
    ("asked", "written"),
    [("gpu:a100:2", "gpu:a100:2"), ("gres/gpu:a100:4,gres:shard:2", "gpu:a100:4,shard:2"), ("gpu", "gpu")],
)
def test_gres_are_written_as_every_release_takes_them(asked: str, written: str) -> None:
    """``gres/gpu:4`` is how scontrol writes it, and what sbatch of 22.05 refuses."""
    assert Resources(gres=asked).gres == written


def test_gpus_a_node_in_the_words_of_gres() -> None:
    """Each item of a list is a GPU, not the first alone."""
    assert each_gpu("a100:2,h100") == "gpu:a100:2,gpu:h100"


@pytest.mark.parametrize(
    ("text", "there"),
    [
        (
            "resources.nodes=4 or topology.switches=null",
            "hydra.launcher.resources.nodes=4 or hydra.launcher.topology.switches=null",
        ),
        ("resources: mem exclude", "hydra.launcher.resources: mem exclude"),
        ("set requeue=never", "set hydra/launcher/requeue=never"),
        ("hydra.launcher.resources.nodes=4", "hydra.launcher.resources.nodes=4"),
        ("ask the site about PrivateData", "ask the site about PrivateData"),
    ],
)
def test_keys_are_written_where_they_are_mounted(text: str, there: str) -> None:
    """Another app's own ``resources`` is not ours: what a person is told to type is the whole key."""
    assert mounted(text, "hydra.launcher.") == there
    assert mounted(text, "") == text
