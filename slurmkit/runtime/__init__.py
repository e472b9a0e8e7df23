"""What runs inside a job: who am I, which signals came, may I requeue, where are the others.

Standard library only: this package is imported on compute nodes by jobs that may bring any environment.
"""
