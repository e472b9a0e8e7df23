"""``python -m tests.bench``: measure all, write ``docs/benchmarks.md``; 1 if a target was missed."""

from __future__ import annotations

import argparse
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from slurmkit.errors import SlurmkitError
from slurmkit.lab.machine import find_programs
from tests.lab.guard import guard

from . import lab, preemption, startup, step_time
from .figures import ROOT, BenchError, Figure
from .page import number, render, target

if TYPE_CHECKING:
    from collections.abc import Mapping

_ALL = {"startup": startup, "lab": lab, "preemption": preemption, "step_time": step_time}
_PAGE = ROOT / "docs" / "benchmarks.md"


def _machine() -> Mapping[str, str]:
    """What the figures depend on; nothing that names the machine."""
    cpu = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.machine(),
    )
    memory = next(int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal"))
    slurmctld = find_programs(accounting=True)["slurmctld"]
    slurm = subprocess.run([slurmctld, "-V"], capture_output=True, text=True, check=True).stdout.split()[-1]
    now = datetime.now(timezone.utc)
    return {
        "Date": f"{now:%Y-%m-%d %H:%M} UTC",
        "CPU": f"{len(os.sched_getaffinity(0))} cores, {cpu}",
        "Memory": f"{memory / 2**20:.0f} GiB",
        "Load at the start": f"{os.getloadavg()[0]:.1f} (one minute's mean; other work on the machine makes figures larger)",
        "Software": f"Python {platform.python_version()}, torch {metadata.version('torch')}, Slurm {slurm}",
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def _line(figure: Figure) -> str:
    low, high = (number(edge(figure.values), figure.unit) for edge in (min, max))
    words = f"{number(figure.median, figure.unit):>10}  ({low} to {high}, {len(figure.values)} runs)  {figure.name}"
    return (
        words
        if figure.target is None
        else f"{words}: {'met' if figure.met else 'MISSED'}, under {target(figure)}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--only", choices=_ALL, help="one measurement alone; the page stays as it is")
    parser.add_argument(
        "--runs", type=int, metavar="N", help="so many runs of each (default: each has its own number)"
    )
    arguments = parser.parse_args()
    for one in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C: leave no lab behind
        signal.signal(one, signal.default_int_handler)
    sections = []
    try:
        machine = _machine()
        with tempfile.TemporaryDirectory(prefix="slurmkit-bench-") as name:
            folder = Path(name)
            folder.chmod(0o755)
            guard(folder)
            for title in [arguments.only] if arguments.only else _ALL:
                begin = time.monotonic()
                print(f"{title} …", flush=True)
                section = _ALL[title].measure(folder, arguments.runs)
                sections.append(section)
                for figure in section.figures:
                    print(_line(figure))
                print(f"  took {time.monotonic() - begin:.0f} s", flush=True)
    except (BenchError, SlurmkitError) as error:
        hint = getattr(error, "hint", "")
        print(f"bench: {error}" + (f"\n  hint: {hint}" if hint else ""), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench: interrupted", file=sys.stderr)
        return 130
    if not arguments.only:
        words = ["python -m tests.bench", *([f"--runs {arguments.runs}"] if arguments.runs else [])]
        command = " ".join(words) if arguments.runs else "make bench  # python -m tests.bench"
        _PAGE.write_text(render(sections, machine, command), encoding="utf-8")
        print(f"written: {_PAGE.relative_to(ROOT)}")
    missed = [figure.name for section in sections for figure in section.figures if not figure.met]
    for name in missed:
        print(f"target missed: {name}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
