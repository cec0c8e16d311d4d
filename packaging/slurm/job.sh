#!/bin/bash
# A job whose programs read and write managed files, on one node or on several with a cluster that hosts share:
#
#     sbatch --export=ALL,STRIPEWISE_CLUSTER=/shared/cluster.toml job.sh ./app ARGUMENTS
#
#SBATCH --job-name=stripewise
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
set -u
here=${STRIPEWISE_SLURM:-/usr/share/doc/stripewise/slurm}
. "$here/prologue.sh"
# One agent for each node lasts as long as the job; it is needed where hosts share the cluster, and of no harm elsewhere.
if [ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 ]; then
    # With --ntasks too: srun takes the job's from the environment otherwise, and ignores --ntasks-per-node, with a warning.
    srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 --overlap --export=ALL stripewise broker &
    STRIPEWISE_AGENTS=$!
fi
stripewise run -- srun --export=ALL "$@"
status=$?
[ -z "${STRIPEWISE_AGENTS:-}" ] || kill "$STRIPEWISE_AGENTS"
. "$here/epilogue.sh" || exit 1
exit $status
