#!/bin/sh
# Runs a script of another scheduler inside a batch job: sets the variables that it expects, and puts srun on PATH.
here=$(cd "$(dirname "$0")" && pwd)
export PATH="$here:$PATH"
export SLURM_JOB_ID="${RAINBOW_JOB_ID:-$$}" SLURM_JOBID="${RAINBOW_JOB_ID:-$$}" SLURM_SUBMIT_DIR="$PWD"
export PBS_JOBID="$SLURM_JOB_ID" PBS_O_WORKDIR="$PWD" PBS_JOBNAME="$SLURM_JOB_NAME" LSB_JOBID="$SLURM_JOB_ID"
if [ -n "${FLUX_URI:-}" ]; then
    SLURM_JOB_NODELIST=$(flux hostlist instance) && export SLURM_JOB_NODELIST SLURM_NODELIST="$SLURM_JOB_NODELIST"
fi
exec "$@"
