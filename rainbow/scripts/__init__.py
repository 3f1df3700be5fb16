"""Batch scripts: directives of Flux, Slurm, PBS and LSF in, a V1 jobspec out.

In: the text of a script with `#flux:`, `#SBATCH`, `#PBS` or `#BSUB` lines, and what the command line adds.
Out: a `BatchJob`: the jobspec, the fields of the submission, and what has no counterpart, one line each.
Callers use `read_script`; nothing here talks to a broker.
"""

from rainbow.scripts.batch import BatchJob, Overrides, read_script

__all__ = ["BatchJob", "Overrides", "read_script"]
