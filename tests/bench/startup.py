"""How long a person waits for a command's first word."""

from __future__ import annotations

import sys
from pathlib import Path

from slurmkit.lab.daemons import Lab

from .figures import Figure, Section, ratio, timed, with_venv

RUNS = 15
_COMPILE = ["slurmkit", "compile", "experiment=gpt_ddp", "resources.gres=gpu:a100:2"]
_TEXT = (
    "Wall time of whole processes, in turns. Cold means a fresh process each time; the compiled bytecode and the file "
    "cache are there, from one round of warming up that is not counted. `slurmkit compile` asks an idle lab of 8 nodes."
)


def measure(folder: Path, runs: int | None) -> Section:
    """Five commands, one after another, again and again."""
    lab = Lab.up("startup", folder=folder / "labs")
    try:
        env = with_venv(lab.env)
        slurmkit = str(Path(sys.executable).with_name("slurmkit"))
        commands = {
            "python -c pass": ([sys.executable, "-c", "pass"], ""),
            "python -c 'import hydra'": ([sys.executable, "-c", "import hydra"], ""),
            "python -c 'import submitit'": ([sys.executable, "-c", "import submitit"], ""),
            "slurmkit --help": ([slurmkit, "--help"], "compile"),
            " ".join(_COMPILE): ([slurmkit, *_COMPILE[1:]], "#SBATCH"),
        }
        seen: dict[str, list[float]] = {name: [] for name in commands}
        for turn in range((runs or RUNS) + 1):
            for name, (argv, says) in commands.items():
                seconds = timed(argv, env, folder, says)
                if turn:
                    seen[name].append(seconds)
    finally:
        Lab.end("startup", folder / "labs")
    bare, hydra, submitit, shown, compiled = seen.values()
    targets = {"slurmkit --help": 0.12, " ".join(_COMPILE): 0.9}
    figures = [Figure(f"`{name}`", tuple(values), target=targets.get(name)) for name, values in seen.items()]
    ratios = [
        ratio("`slurmkit --help` / `python -c pass`", shown, bare),
        ratio("`slurmkit compile …` / `import hydra`", compiled, hydra),
        ratio("`slurmkit compile …` / `import submitit`", compiled, submitit),
    ]
    return Section("Start of a command", _TEXT, (*figures, *ratios))
