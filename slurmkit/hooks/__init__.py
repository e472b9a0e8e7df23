"""Prolog and Epilog onto a node and off it again: what is there, what is safe, what slurm.conf still lacks.

Standard library only: it runs as root on nodes.
"""
