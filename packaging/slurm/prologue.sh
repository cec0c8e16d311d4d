#!/bin/sh
# First lines of a job, as the job's user, in the batch script:
#
#     . /usr/share/doc/stripewise/slurm/prologue.sh
#
# Refuses a job whose cluster has findings, and moves regions while the job runs. STRIPEWISE_CLUSTER names the cluster file, or is the current directory's.
# STRIPEWISE_DAEMON holds options of `stripewise daemon`, such as `--plan plan.json` or `--online`. epilogue.sh ends what this begins.
stripewise check || exit 1
# shellcheck disable=SC2086 # options, one a word
stripewise daemon --migrate-bandwidth auto ${STRIPEWISE_DAEMON:-} 2>> "stripewise-daemon.${SLURM_JOB_ID:-$$}.log" &
STRIPEWISE_DAEMON_PROCESS=$!
trap 'kill "$STRIPEWISE_DAEMON_PROCESS" 2>/dev/null' EXIT
