"""From a plan to a running job: the run folder, the submission through submitit, and what became of it."""
