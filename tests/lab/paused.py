"""The trainer's GPT with a rest in each step: a run then lasts as long as a test wants, and burns no CPU."""

from __future__ import annotations

import os
import time

from trainer.models.gpt import GPT


class PausedGPT(GPT):
    """Rests ``TEST_PAUSE`` seconds a pass, in the first life of the run alone."""

    later = "SLURM_RESTART_COUNT" in os.environ or "TEST_AWAKE" in os.environ
    pause = 0.0 if later else float(os.environ.get("TEST_PAUSE", "0"))

    def forward(self, inputs, targets):  # noqa: ANN001, ANN201
        time.sleep(self.pause)
        return super().forward(inputs, targets)
