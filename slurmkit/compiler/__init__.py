"""From an experiment and a cluster to one readable sbatch script. Pure."""
