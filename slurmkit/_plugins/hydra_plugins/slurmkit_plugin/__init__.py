"""slurmkit's Hydra plugins. Importing them registers their configs; everything heavy waits until a sweep runs."""

from slurmkit.config.register import register_launcher

register_launcher()
