"""The bare-metal DDP trainer: torch and what a job needs to survive preemption."""
