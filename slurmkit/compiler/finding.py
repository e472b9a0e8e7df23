"""What preflight finds, and how sure it is. Plain values."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Finding", "Verdict", "doubted"]


class Verdict(str, Enum):
    """How sure a finding is."""

    IMPOSSIBLE = "impossible"
    """Slurm will refuse the job, or hold it for ever, until config or cluster change."""
    NOT_NOW = "not now"
    """The job will wait for something that can be named."""
    UNKNOWN = "unknown"
    """What would decide it cannot be seen, or a plugin of the site may rewrite it."""


@dataclass(frozen=True)
class Finding:
    """One thing that a person should know before submitting."""

    code: str
    """Stable, such as ``partition.unknown``."""
    verdict: Verdict
    key: str
    """The config key at fault, such as ``resources.partition``."""
    message: str
    accepted: str
    override: str
    """What to type to mend it."""

    def as_json(self) -> dict[str, str]:
        """The finding as plain values."""
        return {**asdict(self), "verdict": self.verdict.value}

    def __str__(self) -> str:
        return f"{self.verdict.value}: {self.key}: {self.message}; accepted: {self.accepted}; mend it with: {self.override}"


def doubted(findings: Iterable[Finding], because: str) -> Iterator[Finding]:
    """The same findings, with nothing *impossible* among them."""
    for item in findings:
        if item.verdict is Verdict.IMPOSSIBLE:
            item = replace(  # noqa: PLW2901 - the same finding, less sure
                item, verdict=Verdict.UNKNOWN, message=f"{item.message} (not certain: {because})"
            )
        yield item
