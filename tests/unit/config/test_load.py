"""Hydra's config files and overrides become an experiment, or one clear error."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from omegaconf import OmegaConf, open_dict

from slurmkit import load_experiment
from slurmkit.config.load import check_points, sections_of
from slurmkit.config.schema import SECTIONS, Resources
from slurmkit.errors import ConfigError
from slurmkit.paths import data_dir

if TYPE_CHECKING:
    from pathlib import Path


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
        ("resources.nods=2", "resources.nods", "resources.nodes"),
        ("resources=two_nods", "one_node, two_nodes", "resources=two_nodes"),
        ("experiment=gpt_dp", "digits, gpt_ddp", "experiment=gpt_ddp"),
        ("trainer.stepz=3", "trainer.stepz", "trainer.steps"),
        ("model.layrs=2", "model.layrs", "model.layers"),
        ("foo=1", "foo", "resources"),
        ("resources.nodes=two", "resources.nodes", "resources"),
        ("resources.nodes=1,2", "resources.nodes", "resources"),
        ("resources.nodes=0", "resources.nodes", "resources.nodes=1"),
        ("x=[1", "x=[1", "quote"),
        ("nonsense", "nonsense", "key=value"),
        ("resources.time=90m", "90m", "1:30:00"),
        ("payload=command", "payload.command", "payload.command="),
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
        ("env.setup=['cd ${HOME}']", "env.setup", "\\${HOME}"),
        ("env.vars.A=null", "field 'env.vars.A' is not Optional", "env.vars"),
        ("name=${nope}", "name: Interpolation key 'nope' not found", "name"),
        ("name=${nope", "'name=${nope'", "key=value"),
        ("resources.mem=${oc.env:NO_SUCH_VARIABLE}", "NO_SUCH_VARIABLE", "resources"),
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
        ("resources.nodes=5", "multiples of 10 (10 ranks", "trainer.batch_size=30"),
        ("trainer.accumulate=3", "trainer.accumulate=3", "trainer.batch_size=36"),
        ("payload.kind=function", "accepted here are trainer and command", "payload=trainer"),
    ],
)
def test_a_wrong_override_is_one_line_and_a_hint(override: str, said: str, hint: str) -> None:
    """The error names the override at fault; the hint names the nearest key or what is accepted."""
    refusal(said, hint, "experiment=gpt_ddp", override)


def test_a_folder_of_ones_own_is_searched(tmp_path: Path) -> None:
    """``--config-dir`` adds a person's own experiments to ours, and the ranks get the same flag."""
    folder = experiment_file(tmp_path, "name: mine\nresources: {nodes: 2}\n")
    experiment = load_experiment(["experiment=mine"], config_dir=folder)
    assert (experiment.name, experiment.resources.nodes) == ("mine", 2)
    assert experiment.payload.command == ["-m", "trainer", "--config-dir", str(tmp_path), "experiment=mine"]


def test_a_missing_folder_is_named() -> None:
    """A ``--config-dir`` that is not there is said, and not searched in silence."""
    with pytest.raises(ConfigError, match="/nowhere/conf"):
        load_experiment(config_dir="/nowhere/conf")


HEAD = "# @package _global_\n"


def config_file(folder: Path, text: str | bytes, name: str) -> Path:
    file = folder / f"{name}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def experiment_file(folder: Path, text: str, name: str = "experiment/mine") -> Path:
    return config_file(folder, HEAD + text, name)


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("resources: {nodes: 3\nfoo: [\n", "experiment/mine.yaml:3: ", "YAML"),
        ("resources:\n\tnodes: 2\n", "experiment/mine.yaml:3: ", "YAML"),
        ("name: a\nname: b\n", "experiment/mine.yaml:3: ", "YAML"),
        ("name: !!python/name:os.system x\n", "experiment/mine.yaml:2: ", "YAML"),
        (
            "defaults:\n  override /model: gpt\n",
            "experiment/mine.yaml: its defaults are no list",
            "- override",
        ),
        ("defaults: 3\n", "experiment/mine.yaml: its defaults are no list", "- override"),
        ("defaults:\n  - model: gpt\n", "'experiment/model/gpt'", "/model: gpt"),
        ("defaults:\n  - override /model: gtp\n", "model: got 'gtp'", "model=gpt"),
        ("defaults:\n  - {override /model: mlp, b: c}\n", "experiment/mine", "--cfg job"),
        (
            "resources: {foo: 1}\n",
            "experiment/mine.yaml: there is no config key 'resources.foo'",
            "resources",
        ),
        ("resources: 3\n", "experiment/mine.yaml: ", "--cfg job"),
        ("name: ${nope.x}\n", "name: Interpolation key 'nope.x' not found", "name"),
        ("name: ${foo\n", "name: an interpolation that cannot be read", "${key}"),
        ("model: {_target_: null}\n", "a mapping with a _target_", "model=gpt"),
    ],
)
def test_a_wrong_file_is_one_line_and_a_hint(tmp_path: Path, text: str, said: str, hint: str) -> None:
    """Whatever is wrong in a file of one's own, the file is named and no traceback is seen."""
    refusal(said, hint, "experiment=mine", config_dir=experiment_file(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        (b"\xff\xfe\x00bad", "UTF-8", "UTF-8"),
        ("resources: {nodes: 2}\n", "experiment/mine.yaml: its keys lie below 'experiment'", HEAD.strip()),
        ("- a\n", "experiment/mine.yaml", HEAD.strip()),
    ],
)
def test_a_file_without_its_head_is_one_line_and_a_hint(
    tmp_path: Path, text: str | bytes, said: str, hint: str
) -> None:
    """A file that is no text, or that does not say where its keys belong, is named as well."""
    refusal(said, hint, "experiment=mine", config_dir=config_file(tmp_path, text, "experiment/mine"))


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
def test_what_a_file_means_as_text_is_not_read_as_a_number(tmp_path: Path, line: str, value: str) -> None:
    """YAML counts in sixties and in octal: an unquoted 30:00 would ask for 1800 minutes. File and line are named."""
    folder = experiment_file(tmp_path, line.format(value))
    error = refusal(f"{value} without quotes", f'"{value}"', "experiment=mine", config_dir=folder)
    assert re.search(r"experiment/mine\.yaml:[23]: ", error.message)
    experiment_file(tmp_path, line.format(f"'{value}'"))
    assert value in str(load_experiment(["experiment=mine"], config_dir=folder))


@pytest.mark.parametrize(
    "defaults", ["", "defaults: [_self_, override /model: gpt]\n", "defaults: [other]\n"]
)
def test_no_file_of_a_config_is_overlooked(tmp_path: Path, defaults: str) -> None:
    """Whether it says ``_self_``, or is only a default of another one: every file that is composed is looked at."""
    experiment_file(tmp_path, "resources: {time: 30:00}\n", "experiment/other")
    text = defaults + ("" if "other" in defaults else "resources: {time: 30:00}\n")
    with pytest.raises(ConfigError, match="30:00 without quotes"):
        load_experiment(["experiment=mine"], config_dir=experiment_file(tmp_path, text))
    load_experiment(["experiment=digits"], config_dir=tmp_path)


def test_numbers_that_arrive_as_written_need_no_quotes(tmp_path: Path) -> None:
    """``OMP_NUM_THREADS: 8``, the flags of sbatch, ``null`` for "not set", and a model's own numbers."""
    text = (
        "resources: {time: 90, exclusive: true, mem: null, extra: {nice: 100, contiguous: true}}\n"
        "env: {vars: {OMP_NUM_THREADS: 8, RATE: 0.5}}\nmodel: {dropout: 1e-1}\n"
    )
    found = load_experiment(["experiment=mine"], config_dir=experiment_file(tmp_path, text))
    assert found.env.vars == {"OMP_NUM_THREADS": "8", "RATE": "0.5"}
    assert (found.resources.exclusive, found.resources.mem) == (True, None)
    assert found.resources.extra == {"nice": 100, "contiguous": True}


def test_times_that_are_no_trap_stay_as_they_are(tmp_path: Path) -> None:
    """Minutes in a file, and every form on the command line."""
    folder = experiment_file(tmp_path, "resources: {time: 90}\n")
    assert load_experiment(["experiment=mine"], config_dir=folder).resources.time == "90"
    for text in ("30:00", "90", "0", "1-12:00:00"):
        assert load_experiment([f"resources.time={text}"]).resources.time == text


@pytest.mark.parametrize(
    ("name", "said", "hint"),
    [
        ("confg", "'confg'; accepted are config, plain", "--config-name config"),
        ("plain", "no payload", "- config"),
    ],
)
def test_a_config_name_that_is_no_experiment_is_refused(
    tmp_path: Path, name: str, said: str, hint: str
) -> None:
    """A primary config that is not there, or that does not build on ours, is named."""
    config_file(tmp_path, "name: x\nruns_dir: y\n", "plain")
    refusal(said, hint, config_name=name, config_dir=tmp_path)


def test_a_primary_config_of_ones_own_builds_on_ours(tmp_path: Path) -> None:
    """A project's own root takes ours as its first default."""
    folder = config_file(tmp_path, "defaults:\n  - config\n  - _self_\nname: mine\n", "own")
    assert load_experiment(config_name="own", config_dir=folder).name == "mine"


def test_the_batch_is_checked_for_the_trainer_alone() -> None:
    """A command has no batch, and where srun is told a number of tasks nobody knows the ranks."""
    assert load_experiment(
        ["payload=command", "payload.command=[a]", "trainer.batch_size=7", "resources.nodes=2"]
    )
    with pytest.raises(ConfigError, match="multiples of 2"):
        load_experiment(["trainer.batch_size=7", "resources.nodes=2"])
    for word in ("resources.extra.ntasks=1", "resources.srun_args=['--ntasks=1']"):
        load_experiment(["trainer.batch_size=7", "resources.nodes=2", word])


def test_the_points_of_a_sweep_are_checked(tmp_path: Path) -> None:
    """A misspelt choice or key, and a value that the trainer refuses, fail on the login node; Hydra judges the rest."""
    folder = config_file(tmp_path, "_target_: a.B\n", "model/sub/c")
    check_points(
        [["model=gpt", "optim.lr=1"], ["model=sub/c", "optim.lr=2"]], ["data=text"], config_dir=folder
    )
    check_points([["optim=[adamw]"], ["optim=[sgd]"]], [])
    with pytest.raises(ConfigError, match="gpt, mlp"):
        check_points([["model=mlp"], ["model=gtp"]], [])
    for point, said in (("model=sub/d", "sub/d"), ("experiment=gpt", "digits, gpt_ddp")):
        with pytest.raises(ConfigError, match=said):
            check_points([[point]], [], config_dir=folder)
    with pytest.raises(ConfigError, match=r"optim\.lrr"):
        check_points([["optim.lrr=1"], ["optim.lrr=2"]], [])
    with pytest.raises(ConfigError, match=r"multiples of 4"):
        check_points([["experiment=gpt_ddp"], ["experiment=digits"]], ["trainer.batch_size=6"])


@pytest.mark.parametrize(
    ("points", "fixed", "said", "hint"),
    [
        (
            [["experiment=digits"], ["experiment=gpt_ddp"]],
            ["name=both", "resources.time=10"],
            "experiment=gpt_ddp: resources.nodes would be 2, and the one job array of a sweep has 1",
            "experiment=gpt_ddp",
        ),
        (
            [["experiment=digits"], ["experiment=gpt_ddp"]],
            [],
            "experiment=digits: name would be 'digits'",
            "give name one value",
        ),
        ([["resources=one_node"], ["resources=two_nodes"]], [], "resources=two_nodes: resources.nodes", "submit once"),
        ([["env.vars.X=1"], ["env.vars.X=2"]], [], "env.vars.X=1: env.vars.X would be '1'", "env.vars.X"),
        ([["requeue=usr1"], ["requeue=never"]], [], "requeue=never: requeue.enabled", "requeue=never"),
        ([["optim.lr=1e-3"], ["optim.lr=3e-3"]], ["name=lr_${optim.lr}"], "optim.lr=3e-3: name", "name"),
        ([["payload.command=[a]"], ["payload.command=[b]"]], ["payload=command"], "payload.command", "submit once"),
    ],
)  # fmt: skip
def test_points_that_need_different_jobs_are_refused(
    points: list[list[str]], fixed: list[str], said: str, hint: str
) -> None:
    """A sweep is one job array: what its tasks share must not hang on what is swept, not even through a group."""
    with pytest.raises(ConfigError) as caught:
        check_points(points, fixed)
    assert said in caught.value.message
    assert hint in caught.value.hint


def test_what_a_point_has_in_a_file_is_read_as_well(tmp_path: Path) -> None:
    """A preset that only a point chooses is looked at for what YAML would change."""
    folder = experiment_file(tmp_path, "env: {vars: {A: 1e-3}}\n")
    with pytest.raises(ConfigError, match="1e-3 without quotes"):
        check_points([["model=mlp"], ["experiment=mine"]], [], config_dir=folder)


def test_a_choice_that_only_the_points_make_may_be_open(tmp_path: Path) -> None:
    """``- model: ???`` in a root of one's own is complete once the sweep names the models."""
    folder = config_file(tmp_path, "defaults: [config, {override model: '???'}, _self_]\n", "own")
    fixed = ["name=a"]
    assert load_experiment(fixed, "own", folder, whole=False).name == "a"
    check_points([["model=mlp"], ["model=gpt"]], [*fixed, "data=text"], "own", folder)


def test_groups_of_another_search_path_can_be_swept(tmp_path: Path) -> None:
    """``hydra.searchpath`` brings groups that only Hydra's own composition knows."""
    folder = config_file(tmp_path, "_target_: a.B\n", "model/far")
    fixed = [f"hydra.searchpath=[file://{folder}]"]
    check_points([["model=mlp"], ["model=far"]], fixed)
    with pytest.raises(ConfigError, match="far"):
        check_points([["model=mlp"], ["model=fat"]], fixed)


def test_what_points_share_need_not_be_whole() -> None:
    """``-m resources.nodes=3 trainer.batch_size=33,66`` is sound, though three ranks cannot share the default batch."""
    with pytest.raises(ConfigError, match="multiples of 3"):
        load_experiment(["resources.nodes=3"])
    assert load_experiment(["resources.nodes=3", "data.path=???"], whole=False).resources.nodes == 3
    check_points([["trainer.batch_size=33"], ["trainer.batch_size=66"]], ["resources.nodes=3"])


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
