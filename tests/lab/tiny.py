"""The overrides for a training whose steps take milliseconds: the model of ``paused``, on real text."""

TINY = (
    "model=gpt",
    "model._target_=paused.PausedGPT",
    "model.layers=2",
    "model.width=32",
    "data=text",
    "data.context=32",
)

STEPS = 60
BATCH = 16
#: A whole run of it: each step has two passes, so that a signal can come between them.
TINY_RUN = (
    *TINY,
    "payload=trainer",
    "resources.cpus_per_task=1",
    "resources.mem=2G",
    "resources.time=10",
    f"trainer.steps={STEPS}",
    f"trainer.batch_size={BATCH}",
    "trainer.accumulate=2",
)
