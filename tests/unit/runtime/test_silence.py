"""Silence is told from a no, in the words that Slurm 22.05 was heard to say."""

from __future__ import annotations

import pytest

from slurmkit.runtime.silence import (
    has_no_conf,
    holds_all_jobs,
    is_unreachable,
    may_have_arrived,
    told,
    tries_again,
)

DEAD = "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)\n"
CUT = "sbatch: error: Batch job submission failed: Unable to contact slurm controller (receive failure)\n"
HANGS = "slurm_load_jobs error: Socket timed out on send/recv operation\n"
OTHER_KEY = "sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received\n"
NO_MUNGE = (
    'scontrol: error: Munge encode failed: Failed to access "/run/munge.sock": No such file or directory (Did you start munged?)\n'
    "slurm_load_jobs error: Protocol authentication error\n"
)
NO_DBD = (
    "sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection to host:db:6819: Connection refused\n"
    "sacct: error: Problem talking to the database: Connection refused\n"
)
#: What scontrol makes of a slurmctld that hangs, and of a munge that is down.
REQUEUE = "Unexpected message received for job 24\n"
NO_FILE = "scontrol: error: s_p_parse_file: cannot stat file /nope: No such file or directory, retrying in 1sec up to 60sec\n"
BAD_FILE = (
    "scontrol: error: _parse_next_key: Parsing error at unrecognized key: Foo\n"
    "scontrol: fatal: Unable to process configuration file\n"
)
STANDBY = "slurm_load_jobs error: Slurm backup controller in standby mode\n"
RESET = "sbatch: error: Batch job submission failed: Connection reset by peer\n"
#: The controller's host is off, and its name goes with it.
NO_NAME = (
    "sbatch: error: get_addr_info: getaddrinfo() fAiled: Name or service not known\n"
    'sbatch: error: slurm_set_addr: Unable to resolve "slurmctld"\n'
    "sbatch: error: Unable to establish control machine address\n"
    "sbatch: error: Batch job submission failed: No error\n"
)
#: With exit code 0.
NO_NAME_OF_DBD = (
    'sacct: error: slurm_set_addr: Unable to resolve "slurmdbd"\n'
    "sacct: error: Error connecting, bad data: family = 0, port = 0\n"
    "sacct: error: Sending PersistInit msg: No error\n"
    "sacct: error: DBD_GET_JOBS_COND failure: Unspecified error\n"
)
DBD_HANGS = (
    "sacct: error: slurm_persist_conn_open: No response to persist_init\n"
    "sacct: error: Sending PersistInit msg: Resource temporarily unavailable\n"
    "sacct: error: Problem talking to the database: Resource temporarily unavailable\n"
)
#: With exit code 0.
NO_NAME_FOR_SCANCEL = (
    "scancel: error: Unable to establish control machine address\n"
    "scancel: error: Kill job error on job id 1: No error\n"
)
#: What every command says first where a second SlurmctldHost has no name: the first one answers all the same.
NO_BACKUP = (
    "{0}: error: get_addr_info: getaddrinfo() fAiled: Name or service not known\n"
    '{0}: error: slurm_set_addr: Unable to resolve "no-such-backup"\n'
    "{0}: error: slurm_set_port: attempting to set port without address family\n"
)
NO_SOURCE = "scontrol: fatal: Could not establish a configuration source\n"


@pytest.mark.parametrize(
    "said",
    [
        DEAD,
        CUT,
        HANGS,
        OTHER_KEY,
        NO_MUNGE,
        NO_DBD,
        NO_NAME,
        NO_NAME_OF_DBD,
        DBD_HANGS,
        NO_NAME_FOR_SCANCEL,
        NO_BACKUP.format("sbatch") + DEAD,
        REQUEUE,
        NO_FILE,
        BAD_FILE,
        NO_SOURCE,
        STANDBY,
        RESET,
    ],
)
def test_no_answer_is_silence(said: str) -> None:
    """A slurmctld that is dead, hangs or cannot be asked: it may answer later, and is asked again."""
    assert is_unreachable(said)


@pytest.mark.parametrize(
    "said",
    [
        "slurm_load_node error: Access/permission denied\n",
        "slurm_load_jobs error: Invalid job id specified\n",
        "Requested operation is presently disabled for job 24\n",
        "sbatch: error: Batch job submission failed: Invalid partition name specified\n",
        "sbatch: error: lua: ask for a partition of our slurm.conf\n",
        NO_BACKUP.format("sbatch")
        + "sbatch: error: Batch job submission failed: Invalid partition name specified\n",
        NO_BACKUP.format("scontrol") + "Requested operation is presently disabled for job 24\n",
        NO_BACKUP.format("squeue") + "slurm_load_jobs error: Invalid job id specified\n",
        NO_BACKUP.format("scancel"),
        "sbatch: error: lua: license server: Connection refused\nsbatch: error: Batch job submission failed: Unspecified error\n",
        "sbatch: error: lua: license server: Connection timed out\nsbatch: error: Batch job submission failed: Unspecified error\n",
    ],
)
def test_a_no_is_an_answer(said: str) -> None:
    """Slurm was reached: to ask again, or to look for slurmctld, would be of no use."""
    assert not is_unreachable(said)
    assert not may_have_arrived(said)


@pytest.mark.parametrize("said", [CUT, HANGS, OTHER_KEY, REQUEUE, RESET])
def test_a_lost_answer_leaves_open_what_was_done(said: str) -> None:
    """After these words of sbatch there may be a job: nothing that it would need is removed."""
    assert may_have_arrived(said)


@pytest.mark.parametrize("said", [DEAD, NO_MUNGE, NO_FILE, NO_SOURCE, STANDBY])
def test_a_question_that_was_never_put_changed_nothing(said: str) -> None:
    """A dead port, no munge, no slurm.conf: there is no job."""
    assert not may_have_arrived(said)


def test_a_missing_slurm_conf_is_told_from_a_dead_slurmctld() -> None:
    """The remedy differs: SLURM_CONF, or the daemon."""
    assert [has_no_conf(said) for said in (NO_FILE, BAD_FILE, NO_SOURCE, DEAD, HANGS)] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_who_tries_again_is_told_from_who_looks_for_a_file() -> None:
    """Three things sbatch tries again after; of one the number of jobs is the cause."""
    full = [
        "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying",
        "sbatch: error: Slurm job queue full, sleeping and retrying",
        "sbatch: error: Job creation temporarily disabled, retrying",
    ]
    assert all(map(tries_again, full))
    assert [holds_all_jobs(said) for said in full] == [True, False, False]
    assert not tries_again(NO_FILE)
    assert not tries_again("sbatch: error: lua: the license server is away, retrying\n")


def test_a_refusal_is_not_lost_among_look_ups() -> None:
    """A name that nobody knows is looked up ten times, each with a line: a person reads what was said beside them."""
    noise = NO_BACKUP.format("scontrol")
    assert told(f"{noise}Invalid job id\n  specified\n") == "Invalid job id specified"
    assert "no-such-backup" in told(noise), "where nothing else was said"
