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
    mounted_at,
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


def refused(kind: type, values: dict[str, object]) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        kind(**values)
    return caught.value


@pytest.mark.parametrize(
    ("kind", "values", "message", "hint"),
    [
        (Resources, {"nodes": 0}, "M.resources.nodes: got 0", "M.resources.nodes=1"),
        (Resources, {"time": "9m"}, "M.resources.time: '9m'", "1:30:00"),
        (Resources, {"mem": "9B"}, "M.resources.mem: '9B'", "16G"),
        (Resources, {"mem": "1G", "mem_per_cpu": "1G"}, "M.resources: mem", "M.resources.mem_per_cpu=null"),
        (Resources, {"gres": "env:2a:"}, "M.resources.gres: 'env:2a:' is", "NAME:COUNT"),
        (Resources, {"gpus_per_node": "a:"}, "M.resources.gpus_per_node: got", "M.resources.gpus_per_node=2"),
        (Resources, {"extra": {"nodes": 1}}, "M.resources.extra.nodes: slurmkit", "use M.resources.nodes"),
        (Resources, {"extra": {"signal": 1}}, "M.resources.extra.signal: slurmkit", "use M.requeue.signal"),
        (Resources, {"extra": {"env.A": 1}}, "M.resources.extra: 'env.A'", "nice"),
        (Resources, {"exclusive": 3}, "M.resources.exclusive: got 3", "M.resources.exclusive=true"),
        (Resources, {"comment": "env.A\t"}, "M.resources.comment: 'env.A\\t'", "M.resources.comment"),
        (Resources, {"srun_args": [["a"]]}, "M.resources.srun_args: ['a'] is a list", "quotes"),
        (Topology, {"switches": 0}, "M.topology.switches: got 0", "M.topology.switches=1"),
        (Topology, {"wait": "x"}, "M.topology.wait: 'x'", "90 minutes"),
        (Requeue, {"signal": "FOO"}, "M.requeue.signal: got 'FOO'", "M.requeue.signal=USR1"),
        (Requeue, {"signal_lead": -1}, "M.requeue.signal_lead: got", "M.requeue.signal_lead=120"),
        (Env, {"vars": {"A-B": "1"}}, "M.env.vars: 'A-B'", "OMP_NUM_THREADS"),
        (Env, {"setup": [{"a": "b"}]}, "M.env.setup: {'a': 'b'} is a mapping", "quotes"),
        (Snapshot, {"max_mb": 0}, "M.snapshot.max_mb: got 0", "M.snapshot.max_mb=1"),
    ],
)
def test_keys_are_named_where_they_are_mounted(
    kind: type, values: dict[str, object], message: str, hint: str
) -> None:
    """Another app's own ``resources`` is not ours: keys are written in full there, and a person's own words as they are."""
    for mount in ("", "hydra.launcher."):
        with mounted_at(mount):
            error = refused(kind, values)
        assert error.message.startswith(message.replace("M.", mount))
        assert hint.replace("M.", mount) in error.hint
        assert error.message.count("hydra.launcher.") == bool(mount)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("signal", "use requeue.signal"),
        ("requeue", "use requeue.enabled"),
        ("no_requeue", "use requeue.enabled"),
        ("switches", "use topology.switches"),
        ("job_name", "use name"),
        ("job-name", "use name"),
        ("wrap", "use payload.command"),
        ("export", "use env.vars"),
        ("gres", "use resources.gres"),
        ("output", "remove resources.extra.output"),
    ],
)
def test_options_that_are_ours_name_our_key(name: str, hint: str) -> None:
    """Whoever knows sbatch writes ``signal`` under ``extra`` first: the hint is the key that says it here."""
    assert refused(Resources, {"extra": {name: "1"}}).hint == hint


def test_one_text_is_one_text() -> None:
    """A list or a mapping where a word, a line or a flag is meant is refused; scalars of sbatch's options are not."""
    odd: list[object] = [["a"], {"a": "b"}]
    for value in odd:
        for kind, values in (
            (Payload, {"kind": "command", "command": ["a", value]}),
            (Env, {"setup": [value]}),
            (Env, {"teardown": [value]}),
            (Resources, {"srun_args": [value]}),
            (Resources, {"extra": {"licenses": value}}),
            (Resources, {"exclusive": value}),
        ):
            assert repr(value) in refused(kind, values).message
    extra = {"nice": 100, "beat": 0.5, "hold": True, "licenses": None, "comment2": "a,b"}
    assert Resources(extra=extra).extra == extra
    assert Resources(exclusive="user").exclusive == "user"


@pytest.mark.parametrize("signal", ["FOO", "SIGUSR1", "usr1", "SEGV", "10", ""])
def test_signals_are_sbatchs(signal: str) -> None:
    """What sbatch refuses is refused here, and each signal has one spelling."""
    assert "requeue.signal=USR1" in refused(Requeue, {"signal": signal}).hint


@pytest.mark.parametrize(
    ("kind", "requeue", "signal"),
    [
        ("trainer", Requeue(), "USR1"),
        ("command", Requeue(), None),
        ("function", Requeue(), None),
        ("command", Requeue(signal="USR2"), "USR2"),
        ("trainer", Requeue(signal=None), None),
        ("trainer", Requeue(signal_lead=0), None),
    ],
)
def test_a_program_is_signalled_where_somebody_asked(kind: str, requeue: Requeue, signal: str | None) -> None:
    """SIGUSR1 ends a program that does not know it: unasked, the trainer alone gets it."""
    assert Experiment(payload=Payload(kind, ["a"]), requeue=requeue).signal == signal


def test_an_empty_folder_of_runs_is_refused() -> None:
    """``SLURMKIT_RUNS_DIR=`` would put runs into the current folder, where no verb looks for them."""
    with pytest.raises(ConfigError, match="runs_dir: an empty path") as caught:
        Experiment(runs_dir="")
    assert "SLURMKIT_RUNS_DIR" in caught.value.hint
