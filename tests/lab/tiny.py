"""The overrides for a training whose steps take milliseconds: the model of ``paused``, on real text."""

TINY = (
    "model=gpt",
    "model._target_=paused.PausedGPT",
    "model.layers=2",
    "model.width=32",
    "data=text",
    "data.context=32",
)
