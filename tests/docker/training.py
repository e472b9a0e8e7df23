"""Training runs on the cluster: submit one as a person does, look at it, compare two."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster import ENDED
from polling import wait_until
from tiny import BATCH, STEPS, TINY_RUN

if TYPE_CHECKING:
    from cluster import Person

#: The model of the lab's tests, which rests in each step.
MODEL = Path(__file__).parents[1] / "lab" / "paused.py"
#: Rest of a rank in each pass (two a step): a first life of 96 s burns no CPU, and is hit in time also where a
#: machine is slow to start the runs that are on their way side by side.
REST = 0.8
#: A rank a node, small enough that a step is a few milliseconds.
SMALL = (*TINY_RUN, "data.workers=0", "trainer.rendezvous_seconds=180")
_PROOF = """
import json, sys
from pathlib import Path
from trainer.events import loss_curve
point = Path(sys.argv[1])
result = json.loads((point / "result.json").read_text())
names = ("parameters_sha256", "samples", "steps")
print(json.dumps({**{name: result[name] for name in names}, "losses": loss_curve(point)}))
"""


@dataclass(frozen=True)
class Training:
    """One submitted training run."""

    person: Person
    run: str

    @property
    def point(self) -> str:
        return f"{self.run}/points/0/0"

    @property
    def job(self) -> str:
        return self.person.job_of(self.run)

    @property
    def log(self) -> str:
        return self.person.log(self.run)

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.person.lines(self.run, "events.jsonl") if event["event"] == kind]

    def last_step(self) -> int:
        lines = self.person.lines(self.run, "metrics.jsonl")
        return int(lines[-1]["step"]) if lines else 0

    def wait_step(self, step: int, timeout: float = 150) -> None:
        wait_until(
            lambda: self.last_step() >= step, timeout, lambda: f"step {step} of {self.run}; {self.log}"
        )

    def wait_event(self, kind: str, timeout: float = 120) -> dict[str, Any]:
        """Wait for the first event of a kind."""
        found = wait_until(lambda: self.events(kind), timeout, lambda: f"{kind!r} of {self.run}; {self.log}")
        return found[0]

    def wait_ended(self, timeout: float = 200) -> str:
        """Wait until the run has ended, however it does; returns its state."""

        def state() -> str | None:
            (point,) = self.person.status(self.run)
            return point["state"] if point["state"] in ENDED else None

        return wait_until(state, timeout, lambda: f"{self.run} to end; {self.log}")

    def proof(self) -> dict[str, Any]:
        """What must be the same to the bit, however often the run was interrupted."""
        done = self.person.run("python", "-c", _PROOF, self.point)
        proof: dict[str, Any] = json.loads(done.stdout)
        assert len(proof["losses"]) == proof["steps"] == STEPS
        return proof


def prepare(person: Person) -> None:
    """Put the model and the data into a person's folder, once."""
    person.run("sh", "-c", "cat >paused.py", stdin=MODEL.read_text())
    person.run("python", "-m", "trainer.data", "prepare", timeout=120)


def train(person: Person, *overrides: str, rest: float = REST) -> Training:
    """Submit a training run from a folder that ``prepare`` has prepared."""
    return Training(person, person.submit(*SMALL, f"env.vars.TEST_PAUSE='{rest}'", *overrides))


def assert_resumed(run: Training, cause: str, undisturbed: Training) -> None:
    """A requeue by the run itself for one cause, a resume at the very next sample, the same end to the bit."""
    (requeued,) = run.events("requeue")
    assert requeued["cause"] == cause, run.log
    assert requeued["restart"] == 0
    assert_same_end(run, undisturbed)
    (resumed,) = run.events("resume")
    assert resumed["step"] == requeued["step"]


def assert_same_end(run: Training, undisturbed: Training) -> None:
    """One interruption, and nothing computed is lost or done twice."""
    (resumed,) = run.events("resume")
    assert resumed["restart"] == 1
    assert 0 < resumed["step"] < STEPS
    assert resumed["cursor"] == resumed["step"] * BATCH
    assert run.proof() == undisturbed.proof()
    (point,) = run.person.status(run.run)
    assert (point["state"], point["restarts"]) == ("COMPLETED", 1)
    run.person.agree(run.run, ["COMPLETED"])
