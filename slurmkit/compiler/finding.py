"""What preflight finds, and how sure it is. Plain values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from slurmkit.config.schema import SECTIONS

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
    """What would decide it cannot be seen: a site's plugin, a file elsewhere, what a program makes of a signal."""


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
    mend: tuple[str, str] | None = None
    """The key and the value that mend it; ``None`` where no override does."""
    advice: str = ""
    """What to do where no override mends it."""
    subject: str = ""
    """Which part of the value is at fault, such as ``gpu:A100`` of a list of gres; empty for all of it."""

    @property
    def place(self) -> tuple[str, str, str]:
        """What it is about: at most one finding has it."""
        return self.code, self.key, self.subject

    @property
    def override(self) -> str:
        """What to type to mend it, quoted for Hydra and the shell where it has commas; else empty."""
        if self.mend is None:
            return ""
        key, value = self.mend
        return f"'{key}=\"{value}\"'" if "," in value else f"{key}={value}"

    def mounted(self, mount: str) -> Finding:
        """The finding with its keys as they are where our sections are mounted.

        Args:
            mount: such as ``hydra.launcher.``; empty at the top.
        """

        def full(key: str) -> str:
            return f"{mount}{key}" if key.partition(".")[0] in SECTIONS else key

        mend = None if self.mend is None else (full(self.mend[0]), self.mend[1])
        return replace(self, key=full(self.key), mend=mend)

    def as_json(self) -> dict[str, str]:
        """The finding as plain values."""
        return {
            "code": self.code,
            "verdict": self.verdict.value,
            "key": self.key,
            "subject": self.subject,
            "message": self.message,
            "accepted": self.accepted,
            "override": self.override,
            "advice": self.advice,
        }

    def __str__(self) -> str:
        mend = f"; mend it with: {self.override}" if self.mend else f"; {self.advice}" if self.advice else ""
        return f"{self.verdict.value}: {self.key}: {self.message}; accepted: {self.accepted}{mend}"


def doubted(findings: Iterable[Finding], because: str) -> Iterator[Finding]:
    """The same findings, with nothing *impossible* among them."""
    for item in findings:
        if item.verdict is Verdict.IMPOSSIBLE:
            item = replace(  # noqa: PLW2901 - the same finding, less sure
                item, verdict=Verdict.UNKNOWN, message=f"{item.message} (not certain: {because})"
            )
        yield item
