"""A submission that is held at a moment of a test's choice, with a real sbatch."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from cluster import ONE, shell
from polling import wait_until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from cluster import Person

#: Three points of one command.
SWEEP = ("-m", *ONE, "trainer.seed=1,2,3")
#: Holds a real sbatch where a test wants it: before Slurm is asked, or before its answer is passed on.
SBATCH = """#!/bin/bash
hold() { : >"held-$1"; until [ -e "go-$1" ]; do sleep 0.05; done; }
[ "$HOLD" != before ] || hold before
said=$(/usr/bin/sbatch "$@"); code=$?
[ "$HOLD" != after ] || hold after
[ -z "$said" ] || printf '%s\\n' "$said"
exit $code
"""


def submit_around(
    person: Person, when: str, fault: Callable[[], object], *words: str, code: int
) -> subprocess.CompletedProcess[str]:
    """``slurmkit submit``, of a sweep where no words are given, with a fault ``before`` slurmctld is asked or ``after`` it has answered."""
    person.run("sh", "-c", "mkdir -p bin && cat >bin/sbatch && chmod +x bin/sbatch", stdin=SBATCH)
    path = f"{person.cwd}/bin:/opt/slurmkit/bin:/usr/bin:/bin"
    words = words or (person.new_name(), *SWEEP, shell("true"))
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(person.slurmkit, "submit", *words, code=code, HOLD=when, PATH=path)

        def held() -> bool:
            return done.done() or not person.run("test", "-e", f"held-{when}", code=None).returncode

        wait_until(held, 60, f"sbatch to be held {when} slurmctld answers")
        if not done.done():
            fault()
            person.run("touch", f"go-{when}")
        return done.result()
