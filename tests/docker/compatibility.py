"""``docs/compatibility.md``, as the tests on the clusters found it: a row for each feature, a column for each release.

A run on one release leaves ``build/docker/results/RELEASE.json``; ``python tests/docker/compatibility.py`` makes
the page of those of all three. It refuses where one is missing, or did not run every test.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "build" / "docker" / "results"
PAGE = ROOT / "docs" / "compatibility.md"
RELEASES = ("22.05", "24.11", "26.05")

#: How good an outcome is: a feature is as good as the worst of its tests.
_OUTCOMES = ("failed", "skipped", "absent", "passed")
#: The last line of a pytest that came to its end.
_ENDED = re.compile(r"\d+ (passed|failed|error).* in [\d.]+s")
_WORDS = {"passed": "yes", "failed": "**no**", "skipped": "not tried", "absent": "not there"}

_TOP = """# Compatibility

Does it work with our Slurm? Each cell below is a test that ran on a cluster of containers of that release: a
controller, slurmdbd on MariaDB, slurmrestd, a login host and eight nodes as hosts of their own. *Not there* is what
that system's Slurm was built without. The page is written by the run itself, whatever it found:

```
make test-docker SLURM=all
```

"""
_NOT_TRIED = """
## What no release was tried with

Real GPUs and NCCL; cgroups (the clusters run `proctrack/linuxproc` and `task/none`); a network file system (all
hosts see one local file system); releases between these three. `slurmkit lab up` tries the Slurm that is installed
on your machine.
"""


@dataclass
class Results:
    """What the tests found on one release.

    Attributes:
        release: such as ``24.11``.
        slurm: to the last digit, such as ``24.11.5``.
        system: that has it, and its Python.
        date: of the run.
        code: the commit that was tried, as git describes it; ``-dirty`` with changes that are in none.
        up: seconds from an image to a cluster whose nodes are all idle.
        complete: whether every test was run.
        lab: the last line of pytest on tests/lab, in one container of the release.
        features: the worst outcome of the tests of each feature, by its words, in the order they ran.
        differences: what the release does in its own way: topic, what was seen, and where our code handles it.
    """

    release: str
    slurm: str = ""
    system: str = ""
    date: str = ""
    code: str = ""
    up: int = 0
    complete: bool = False
    lab: str = ""
    features: dict[str, str] = field(default_factory=dict)
    differences: list[dict[str, str]] = field(default_factory=list)

    def add(self, feature: str, outcome: str) -> None:
        """Note how a test of a feature went."""
        before = self.features.get(feature, "passed")
        self.features[feature] = min(before, outcome, key=_OUTCOMES.index)

    def differs(self, topic: str, seen: str, handled: str = "") -> None:
        """Note what this release does in its own way.

        Args:
            topic: the same words on every release.
            seen: what this one does.
            handled: ``path:name`` of the code that copes with it; both must exist. Nothing where none has to.
        """
        if handled:
            path, _, name = handled.partition(":")
            text = (ROOT / path).read_text(encoding="utf-8")
            assert name, f"{handled}: write path:name"
            assert re.search(rf"^ *(def |class )?{re.escape(name)}\b", text, re.MULTILINE), (
                f"{handled}: nothing of {path} is called {name}"
            )
        self.differences.append({"topic": topic, "seen": seen, "handled": handled})

    def is_whole(self, *, chosen: bool, files: set[Path], left: set[str]) -> bool:
        """Whether nothing was left out.

        Args:
            chosen: whether some tests were asked for by name or mark.
            files: of the tests that were collected.
            left: tests that did not run to their end, as after Ctrl-C.
        """
        all_files = files == set(Path(__file__).parent.glob("test_*.py"))
        return all_files and self.up > 0 and not chosen and not left

    def save(self, folder: Path = RESULTS) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.release}.json").write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")


def code_here() -> str:
    """The commit of this checkout, as git describes it; empty where there is none."""
    words = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def load(folder: Path = RESULTS) -> list[Results]:
    """The results of all three releases.

    Raises:
        SystemExit: if one is missing, is not whole, or is of other code than the rest.
    """
    found = []
    for release in RELEASES:
        file = folder / f"{release}.json"
        if not file.exists():
            sys.exit(f"compatibility: no run on {release}: make test-docker SLURM={release}")
        found.append(Results(**json.loads(file.read_text(encoding="utf-8"))))
        lab = folder / f"{release}.lab.log"
        found[-1].lab = lab.read_text(encoding="utf-8").rstrip().rpartition("\n")[2] if lab.exists() else ""
        if not (found[-1].complete and _ENDED.search(found[-1].lab)):
            sys.exit(f"compatibility: the run on {release} left tests out: make test-docker SLURM={release}")
    codes = {result.code for result in found}
    if len(codes) > 1:
        sys.exit(
            f"compatibility: the runs are of different code, {', '.join(sorted(codes))}: make test-docker SLURM=all"
        )
    return found


def render(results: list[Results]) -> str:
    """The page of these results."""
    head = [f"{result.slurm}<br>{result.system}" for result in results]
    features = list(dict.fromkeys(name for result in results for name in result.features))
    rows = [
        [name, *(_WORDS.get(result.features.get(name, ""), "-") for result in results)] for name in features
    ]
    counts = [re.sub(r" in .*|[^a-z0-9, ]", "", result.lab).strip() for result in results]
    rows.append(["The lab tests, on nodes emulated in one container", *counts])
    rows.append(["From the image to idle nodes", *(f"{result.up} s" for result in results)])
    dates = sorted({result.date for result in results})
    return "".join(
        [
            _TOP,
            f"Last run: {' and '.join(dates)}, of commit {results[0].code or 'unknown'}.\n\n",
            _table(["", *head], rows),
            "\n## What differs, and where it is handled\n\n",
            _table(["", *(result.release for result in results), "handled in"], _differences(results)),
            _NOT_TRIED,
        ]
    )


def _differences(results: list[Results]) -> list[list[str]]:
    topics: dict[str, dict[str, Any]] = {}
    for result in results:
        for item in result.differences:
            row = topics.setdefault(item["topic"], {"handled": item["handled"]})
            row[result.release] = item["seen"]
    return [
        [topic, *(row.get(result.release, "-") for result in results), _code(row["handled"])]
        for topic, row in topics.items()
    ]


def _code(handled: str) -> str:
    return f"`{handled}`" if handled else "-"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["-"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(render(load()), encoding="utf-8")
    print(PAGE)
