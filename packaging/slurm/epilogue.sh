#!/bin/sh
# Last lines of a job that began with prologue.sh, in the same batch script:
#
#     . /usr/share/doc/stripewise/slurm/epilogue.sh
#
# Waits for the moves under way, ends the daemon and checks the cluster: the job fails if something was found.
trap - EXIT
stripewise migrate wait || echo "stripewise: not every move was made: see stripewise-daemon.${SLURM_JOB_ID:-}*.log" >&2
kill "$STRIPEWISE_DAEMON_PROCESS"
wait "$STRIPEWISE_DAEMON_PROCESS" || true
stripewise check
