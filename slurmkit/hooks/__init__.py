"""Prolog and Epilog onto a node and off it again: what is there, what is safe, what slurm.conf still lacks.

Standard library only, in the syntax of Python 3.9: it runs as root on nodes that have nothing else.
"""
