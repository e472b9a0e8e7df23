"""Hydra's config files and overrides become an experiment, or one clear error."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from omegaconf import OmegaConf, open_dict

from slurmkit import load_experiment
from slurmkit.config.load import sections_of
from slurmkit.config.schema import SECTIONS, Resources
from slurmkit.errors import ConfigError
from slurmkit.paths import data_dir

if TYPE_CHECKING:
    from collections.abc import Callable


def refusal(said: str, hint: str, *overrides: str, **where: object) -> ConfigError:
    """Composing is refused with a line that says this, and with this hint."""
    with pytest.raises(ConfigError) as caught:
        load_experiment(overrides, **where)  # type: ignore[arg-type]
    assert said in caught.value.message
    assert hint in caught.value.hint
    assert "\n" not in caught.value.message + caught.value.hint
    return caught.value


@pytest.mark.parametrize(
    "path", sorted((data_dir("conf") / "experiment").glob("*.yaml")), ids=lambda path: path.stem
)
def test_every_experiment_composes(path: Path) -> None:
    """Each experiment that we ship is one that the schema accepts."""
    assert load_experiment([f"experiment={path.stem}"]).name == path.stem


def test_overrides_arrive_typed() -> None:
    """Overrides reach the frozen dataclasses with Slurm's names; 90 stays the text that Slurm reads as minutes."""
    experiment = load_experiment(
        [
            "experiment=gpt_ddp",
            "resources.nodes=4",
            "resources.time=90",
            "resources.extra.nice=5",
            "env.vars.A='b,c'",
        ]
    )
    assert isinstance(experiment.resources, Resources)
    assert (
        experiment.resources.nodes,
        experiment.resources.time,
        experiment.resources.extra,
        experiment.env.vars,
    ) == (4, "90", {"nice": 5}, {"A": "b,c"})
    assert experiment.topology.switches == 1
    assert experiment.config["model"]["_target_"] == "trainer.models.gpt.GPT"


def test_the_trainer_is_started_with_the_same_words() -> None:
    """What was typed is what the ranks compose again, quotes and all."""
    words = ["experiment=digits", 'name="a,b $(c)"']
    assert load_experiment(words).payload.command == ["-m", "trainer", *words]


@pytest.mark.parametrize(
    ("override", "said", "hint"),
    [
        (
            "resources.nods=2",
            "no config key 'resources.nods'",
            "did you mean resources.nodes or resources.qos",
        ),
        ("resources=two_nods", "one_node, two_nodes", "resources=two_nodes"),
        ("experiment=gpt_dp", "digits, gpt_ddp", "experiment=gpt_ddp"),
        ("trainer.stepz=3", "no config key 'trainer.stepz'", "did you mean trainer.steps or"),
        ("model.layrs=2", "no config key 'model.layrs'", "did you mean model.layers or"),
        ("foo=1", "there is no config key 'foo'", "at the top are data, env, experiment, model, name"),
        (
            "resources.nodes=two",
            "resources.nodes: Value 'two' of type 'str' could not be converted",
            "--package resources",
        ),
        (
            "resources.nodes=1,2",
            "resources.nodes=1,2: several values",
            "-m resources.nodes=1,2; one list is resources.nodes=[1,2]",
        ),
        ("resources.nodes=0", "resources.nodes: got 0", "resources.nodes=1"),
        ("x=[1", "x=[1", "quote"),
        ("nonsense", "nonsense", "key=value"),
        ("resources.time=90m", "90m", "1:30:00"),
        (
            "payload=command",
            "payload.command: a payload of kind 'command' needs one",
            "payload.command=[hostname]",
        ),
        ("payload.command=ls", "payload.command: got ls, accepted is a list", "'payload.command=[ls]'"),
        ("payload.command='ls -l'", "payload.command: got 'ls -l'", "'payload.command=[ls,-l]'"),
        ("env.setup='module load cuda'", "env.setup: got", "\"env.setup=['module load cuda']\""),
        (
            "env.setup=[{echo cuda: enabled}]",
            "{'echo cuda': 'enabled'} is a mapping to Hydra and YAML",
            "in quotes",
        ),
        ("resources.extra.licenses=[a,b]", "resources.extra.licenses: ['a', 'b'] is a list", "in quotes"),
        ("hydra.launcher.resources.nodes=2", "without Hydra's launcher", "write resources.nodes=2"),
        ("++hydra.launcher.env.vars.A=1", "without Hydra's launcher", "write env.vars.A=1"),
        ("hydra/launcher/resources=two_nodes", "without Hydra's launcher", "write resources=two_nodes"),
        ("hydra.launcher.wait=true", "without Hydra's launcher", "write --wait"),
        ("hydra/launcher=basic", "without Hydra's launcher", "leave it out"),
        ("hydra/sweeper=basic", "without Hydra's sweeper", "slurmkit submit -m"),
        ("resources=null", "one_node, two_nodes", "resources="),
        ("payload=null", "command, trainer", "payload="),
        ("resources=3", "one_node, two_nodes", "resources="),
        ("+resources.foo=1", "'resources.foo'", "resources.extra"),
        ("+trainer.checkpoint.foo=1", "'trainer.checkpoint.foo'", "trainer.checkpoint.root"),
        ("+resources.tim=1", "'resources.tim'", "resources.time"),
        ("+env.foo=1", "'env.foo'; accepted are python, setup", "remove env.foo"),
        ("+payload.comand=[a]", "'payload.comand'", "payload.command"),
        ("+optim.foo=1", "optim.foo=1: accepted is one of name, lr", "optim=adamw"),
        ("optim.lr=1,2", "optim.lr=1,2: several values", "slurmkit submit -m optim.lr=1,2"),
        ("optim.lr=range(1,3)", "optim.lr=range(1,3): several values", "slurmkit submit -m"),
        ("resources.partition=low,high", "are a sweep", "one text 'resources.partition=\"low,high\"'"),
        ("env.vars.A=${HOME}", "env.vars.A: Interpolation key 'HOME'", "${oc.env:HOME}"),
        ("env.setup=['cd ${HOME}']", "Interpolation key 'HOME'", "\\${HOME}"),
        ("env.vars.A=null", "env.vars.A: got null, accepted is a value", "leave env.vars.A out"),
        ("env.setup=null", "env.setup: got null, accepted is a value", "leave env.setup out"),
        ("name=${nope}", "name: Interpolation key 'nope' not found", "--package name"),
        ("name=${nope", "'name=${nope'", "key=value"),
        (
            "resources.mem=${oc.env:NO_SUCH_VARIABLE}",
            "resources.mem: KeyError raised while resolving interpolation: \"Environment variable 'NO_SUCH_VARIABLE' not found\"",
            "--package resources",
        ),
        ("resources.gres=gpu:", "resources.gres", "NAME:TYPE:COUNT"),
        ("resources.cpus_per_gpu=2", "cpus_per_task exclude", "resources.cpus_per_task=null"),
        ("resources.mem=16B", "resources.mem", "16G"),
        ("~model", "model=None", "model=gpt"),
        ("model._target_=null", "a mapping with a _target_", "model=gpt"),
        ("trainer.batch_size=-1", "trainer.batch_size=-1", "trainer.batch_size=1"),
        ("trainer.steps=-1", "trainer.steps=-1", "trainer.steps=1"),
        ("data.kind=magic", "text or table", "data.kind=text"),
        ("optim.lr=abc", "optim.lr='abc'", "optim.lr=0.001"),
        ("optim.clip=null", "optim.clip=None", "optim.clip=1.0"),
        ("optim.decay=3", "true or false", "optim.decay=True"),
        (
            "resources.nodes=17",
            "34 and more, a sample for each pass of each rank (34 ranks",
            "trainer.batch_size=34",
        ),
        ("trainer.accumulate=9", "trainer.accumulate=9", "trainer.batch_size=36"),
        ("payload.kind=function", "accepted here are trainer and command", "payload=trainer"),
    ],
)
def test_a_wrong_override_is_one_line_and_a_hint(override: str, said: str, hint: str) -> None:
    """The error names the override at fault; the hint names the nearest key or what is accepted."""
    refusal(said, hint, "experiment=gpt_ddp", override)


def test_a_folder_of_ones_own_is_searched(experiment_file: Callable[..., Path], tmp_path: Path) -> None:
    """``--config-dir`` adds a person's own experiments to ours, and the ranks get the same flag."""
    folder = experiment_file("name: mine\nresources: {nodes: 2}\n")
    experiment = load_experiment(["experiment=mine"], config_dir=folder)
    assert (experiment.name, experiment.resources.nodes) == ("mine", 2)
    assert experiment.payload.command == ["-m", "trainer", "--config-dir", str(tmp_path), "experiment=mine"]


def test_a_missing_folder_is_named() -> None:
    """A ``--config-dir`` that is not there is said, and not searched in silence."""
    with pytest.raises(ConfigError, match="/nowhere/conf"):
        load_experiment(config_dir="/nowhere/conf")


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("resources: {nodes: 3\nfoo: [\n", "experiment/mine.yaml:3: ", "mend the YAML there"),
        ("resources:\n\tnodes: 2\n", "experiment/mine.yaml:3: ", "mend the YAML there"),
        ("name: a\nname: b\n", "experiment/mine.yaml:3: ", "mend the YAML there"),
        ("name: !!python/name:os.system x\n", "experiment/mine.yaml:2: ", "mend the YAML there"),
        (
            "defaults:\n  override /model: gpt\n",
            "experiment/mine.yaml: its defaults are no list",
            "- override",
        ),
        ("defaults: 3\n", "experiment/mine.yaml: its defaults are no list", "- override"),
        ("defaults:\n  - model: gpt\n", "'experiment/model/gpt'", "/model: gpt"),
        (
            "defaults:\n  - override /model: gtp\n",
            "model: got 'gtp'; accepted are gpt, mlp",
            "did you mean model=gpt?",
        ),
        (
            "defaults:\n  - {override /model: mlp, b: c}\n",
            "In experiment/mine: Too many keys",
            "--package experiment",
        ),
        (
            "resources: {foo: 1}\n",
            "experiment/mine.yaml: there is no config key 'resources.foo'",
            "did you mean resources.qos or resources or resources.nodes?",
        ),
        ("resources: 3\n", "experiment/mine.yaml: Merge error: int is not", "python -m trainer --cfg job"),
        ("name: ${nope.x}\n", "name: Interpolation key 'nope.x' not found", "--package name"),
        ("name: ${foo\n", "name: an interpolation that cannot be read", "${key}"),
        ("model: {_target_: null}\n", "a mapping with a _target_", "model=gpt"),
    ],
)
def test_a_wrong_file_is_one_line_and_a_hint(
    experiment_file: Callable[..., Path], text: str, said: str, hint: str
) -> None:
    """Whatever is wrong in a file of one's own, the file is named and no traceback is seen."""
    refusal(said, hint, "experiment=mine", config_dir=experiment_file(text))


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        (b"\xff\xfe\x00bad", "UTF-8", "UTF-8"),
        (
            "resources: {nodes: 2}\n",
            "experiment/mine.yaml: its keys lie below 'experiment'",
            "# @package _global_",
        ),
        ("- a\n", "experiment/mine.yaml: its keys lie below 'experiment'", "# @package _global_"),
    ],
)
def test_a_file_without_its_head_is_one_line_and_a_hint(
    config_file: Callable[[str, str | bytes], Path], text: str | bytes, said: str, hint: str
) -> None:
    """A file that is no text, or that does not say where its keys belong, is named as well."""
    refusal(said, hint, "experiment=mine", config_dir=config_file("experiment/mine", text))


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("resources:\n  time: {}\n", "30:00"),
        ("topology: {{switches: 1, wait: {}}}\n", "1:30:00"),
        ("env: {{vars: {{A: {}}}}}\n", "5:00"),
        ("env: {{vars: {{A: {}}}}}\n", "true"),
        ("env: {{vars: {{A: {}}}}}\n", "012"),
        ("env: {{setup: [a, {}]}}\n", "on"),
        ("name: {}\n", "1_000"),
        ("resources: {{comment: {}}}\n", "1e-3"),
        ("resources: {{srun_args: [{}]}}\n", "0x1f"),
        ("resources: {{extra: {{nice: {}}}}}\n", "0x10"),
        ("data: {{path: {}}}\n", "1e3"),
        ("payload: {{kind: command, command: [a, {}]}}\n", "1e-3"),
        ("model: {{pause: {}}}\n", "1:30"),
    ],
)
def test_what_a_file_means_as_text_is_not_read_as_a_number(
    experiment_file: Callable[..., Path], line: str, value: str
) -> None:
    """YAML counts in sixties and in octal: an unquoted 30:00 would ask for 1800 minutes. File and line are named."""
    folder = experiment_file(line.format(value))
    error = refusal(f"{value} without quotes", f'"{value}"', "experiment=mine", config_dir=folder)
    assert re.search(r"experiment/mine\.yaml:[23]: ", error.message)
    experiment_file(line.format(f"'{value}'"))
    assert value in str(load_experiment(["experiment=mine"], config_dir=folder))


@pytest.mark.parametrize(
    "defaults", ["", "defaults: [_self_, override /model: gpt]\n", "defaults: [other]\n"]
)
def test_no_file_of_a_config_is_overlooked(
    experiment_file: Callable[..., Path], tmp_path: Path, defaults: str
) -> None:
    """Whether it says ``_self_``, or is only a default of another one: every file that is composed is looked at."""
    experiment_file("resources: {time: 30:00}\n", "experiment/other")
    text = defaults + ("" if "other" in defaults else "resources: {time: 30:00}\n")
    with pytest.raises(ConfigError, match="30:00 without quotes"):
        load_experiment(["experiment=mine"], config_dir=experiment_file(text))
    load_experiment(["experiment=digits"], config_dir=tmp_path)


def test_numbers_that_arrive_as_written_need_no_quotes(experiment_file: Callable[..., Path]) -> None:
    """``OMP_NUM_THREADS: 8``, the flags of sbatch, ``null`` for "not set", and a model's own numbers."""
    text = (
        "resources: {time: 90, exclusive: true, mem: null, extra: {nice: 100, contiguous: true}}\n"
        "env: {vars: {OMP_NUM_THREADS: 8, RATE: 0.5}}\nmodel: {dropout: 1e-1}\n"
    )
    found = load_experiment(["experiment=mine"], config_dir=experiment_file(text))
    assert found.env.vars == {"OMP_NUM_THREADS": "8", "RATE": "0.5"}
    assert (found.resources.exclusive, found.resources.mem) == (True, None)
    assert found.resources.extra == {"nice": 100, "contiguous": True}


def test_times_that_are_no_trap_stay_as_they_are(experiment_file: Callable[..., Path]) -> None:
    """Minutes in a file, and every form on the command line."""
    folder = experiment_file("resources: {time: 90}\n")
    assert load_experiment(["experiment=mine"], config_dir=folder).resources.time == "90"
    for text in ("30:00", "90", "0", "1-12:00:00"):
        assert load_experiment([f"resources.time={text}"]).resources.time == text


@pytest.mark.parametrize(
    ("name", "said", "hint"),
    [
        ("confg", "'confg'; accepted are config, plain", "--config-name config"),
        ("", "''; accepted are config, plain", "--config-name config"),
        ("plain", "no payload", "- config"),
    ],
)
def test_a_config_name_that_is_no_experiment_is_refused(
    config_file: Callable[[str, str | bytes], Path], tmp_path: Path, name: str, said: str, hint: str
) -> None:
    """A primary config that is not there, or that does not build on ours, is named."""
    config_file("plain", "name: x\nruns_dir: y\n")
    error = refusal(said, hint, config_name=name, config_dir=tmp_path)
    assert "slurmkit_app" not in error.message, "the schema is no experiment"


def test_a_primary_config_of_ones_own_builds_on_ours(config_file: Callable[[str, str | bytes], Path]) -> None:
    """A project's own root takes ours as its first default."""
    folder = config_file("own", "defaults:\n  - config\n  - _self_\nname: mine\n")
    assert load_experiment(config_name="own", config_dir=folder).name == "mine"


def test_the_batch_is_checked_for_the_trainer_alone() -> None:
    """A command has no batch, and where srun is told a number of tasks nobody knows the ranks."""
    assert load_experiment(
        ["payload=command", "payload.command=[a]", "trainer.batch_size=1", "resources.nodes=2"]
    )
    with pytest.raises(ConfigError, match="2 and more"):
        load_experiment(["trainer.batch_size=1", "resources.nodes=2"])
    tells = ("--ntasks=1", "--ntasks-per-core=1", "--nodes=1", "-n", "-n1", "-N1")
    extra = (
        "resources.extra.ntasks=1",
        "resources.extra.ntasks_per_core=1",
        "resources.extra.ntasks-per-core=1",
    )
    for word in (*extra, *(f"resources.srun_args=['{tell}']" for tell in tells)):
        load_experiment(["trainer.batch_size=1", "resources.nodes=2", word])
    silent = ("--nice=1", "--network=a", "--no-kill", "--label", "-l")
    for word in ("resources.extra.nice=100", *(f"resources.srun_args=['{word}']" for word in silent)):
        with pytest.raises(ConfigError, match="2 and more"):
            load_experiment(["trainer.batch_size=1", "resources.nodes=2", word])


@pytest.mark.parametrize("words", [["requeue=usr1", "payload=command"], ["payload=command", "requeue=usr1"]])
def test_a_preset_that_is_asked_counts(words: list[str]) -> None:
    """``requeue=usr1`` signals a command too, whichever is typed first."""
    assert load_experiment([*words, "payload.command=[a]"]).signal == "USR1"
    assert load_experiment(["payload=command", "payload.command=[a]"]).signal is None
    assert load_experiment(["requeue=plain"]).signal is None
    assert load_experiment([]).signal == load_experiment(["requeue=never"]).signal == "USR1"


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("time", "9m", "hydra.launcher.resources.time: '9m'"),
        ("foo", 1, "no config key 'hydra.launcher.resources.foo'"),
        ("mem", "${nope}", "mem: Interpolation key 'nope' not found"),
    ],
)
def test_errors_in_another_app_name_the_key_that_is_there(key: str, value: object, said: str) -> None:
    """Under ``hydra/launcher=slurmkit`` the sections are not at the top, and neither are the keys of an error."""
    options = {name: OmegaConf.structured(kind) for name, kind in SECTIONS.items()}
    OmegaConf.set_readonly(options["resources"], value=False)
    with open_dict(options["resources"]):
        options["resources"][key] = value
    with pytest.raises(ConfigError) as caught:
        sections_of(options, "hydra.launcher.")
    assert said in caught.value.message
    assert caught.value.hint


def test_an_unseen_data_file_is_kept_for_preflight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the trainer's file can be seen is known where it is composed; a command reads none."""
    monkeypatch.chdir(tmp_path)
    assert load_experiment(["experiment=digits"]).unseen == "data/digits.h5"
    assert load_experiment(["data.path='~nobody-at-all/x'"]).unseen == "~nobody-at-all/x"
    assert load_experiment(["payload=command", "payload.command=[a]"]).unseen == ""
    Path("data").mkdir()
    Path("data/digits.h5").touch()
    assert load_experiment(["experiment=digits"]).unseen == ""
