"""The schema refuses what Slurm would refuse, and names the override that mends it."""

from __future__ import annotations

import pytest

from slurmkit.config.schema import Env, Experiment, Payload, Requeue, Resources, Snapshot, Topology
from slurmkit.errors import ConfigError


@pytest.mark.parametrize(
    ("kind", "values", "key"),
    [
        (Resources, {"nodes": 0}, "resources.nodes"),
        (Resources, {"time": "90m"}, "resources.time"),
        (Resources, {"mem": "16GiB"}, "resources.mem"),
        (Resources, {"mem": "1G", "mem_per_cpu": "1G"}, "mem_per_cpu"),
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
        (Payload, {"kind": "magic"}, "payload.kind"),
        (Snapshot, {"max_mb": 0}, "snapshot.max_mb"),
        (Experiment, {"name": "a\nb"}, "name"),
        (Experiment, {"name": "  "}, "name"),
    ],
)
def test_bad_values_are_refused_with_their_key(kind: type, values: dict[str, object], key: str) -> None:
    """No bad value gets past construction; the message names its key and the hint what to type."""
    with pytest.raises(ConfigError) as caught:
        kind(**values)
    assert key in caught.value.message + caught.value.hint
    assert caught.value.hint
