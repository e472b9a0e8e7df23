"""A real, emulated Slurm on this machine in seconds: its own munge, controller and nodes, as root or not.

``config`` is text only, ``daemons`` has :class:`~slurmkit.lab.daemons.Lab`, which starts and ends it.
"""
