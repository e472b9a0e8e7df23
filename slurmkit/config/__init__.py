"""The typed config: what an experiment is, and how Hydra composes one."""
