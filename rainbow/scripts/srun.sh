#!/bin/sh
# srun for scripts that were written for Slurm: what maps becomes `flux run`, what does not is refused by name.
# Without Flux (a local executor) the tasks are processes on this machine.
set -eu
refuse() {
    echo "srun: $1 has no counterpart here: remove it" >&2
    exit 2
}
nodes='' tasks='' cores='' gpus='' label='' options=''
add() { options="$options$(printf " '%s'" "$(printf %s "$1" | sed "s/'/'\\\\''/g")")"; }
while [ $# -gt 0 ]; do
    option=$1
    case $option in
        --*=*) value=${option#*=} option=${option%%=*} shifts=1 ;;
        -[NncGtoeiDJ]?*) value=${option#??} option=${option%"$value"} shifts=1 ;;
        *) value=${2-} shifts=2 ;;
    esac
    case $option in
        -N | --nodes) nodes=$value ;;
        -n | --ntasks) tasks=$value ;;
        -c | --cpus-per-task) cores=$value ;;
        --ntasks-per-node) tasks=$((value * ${nodes:-${SLURM_NNODES:-1}})) ;;
        -G | --gpus | --gpus-per-node | --gres) refuse "$option (write --gpus-per-task)" ;;
        --gpus-per-task) gpus=$value ;;
        -t | --time)
            case $value in *[!0-9]*) refuse "$option=$value (write minutes)" ;; esac
            add "--time-limit=${value}m"
            ;;
        -o | --output) add "--output=$value" ;;
        -e | --error) add "--error=$value" ;;
        -i | --input) add "--input=$value" ;;
        -D | --chdir) add "--cwd=$value" ;;
        -J | --job-name) add "--job-name=$value" ;;
        --mpi | --kill-on-bad-exit | -K) [ "$option" = -K ] && shifts=1 ;;
        -l | --label) label=1 shifts=1 ;;
        -u | --unbuffered) add --unbuffered && shifts=1 ;;
        --exact | --overlap | --exclusive) shifts=1 ;;
        --cpu-bind)
            case $value in none) add -ocpu-affinity=off ;; cores) ;; *) refuse "$option=$value" ;; esac
            ;;
        --) shift && break ;;
        -*) refuse "$option" ;;
        *) break ;;
    esac
    shift "$shifts"
done
[ $# -gt 0 ] || { echo "srun: no command" >&2; exit 2; }
# Without numbers of its own a step takes the whole job.
tasks=${tasks:-${SLURM_NTASKS:-${nodes:-1}}}
[ -n "$nodes" ] || [ "$tasks" != "${SLURM_NTASKS:-}" ] || nodes=${SLURM_NNODES:-}
cores=${cores:-${SLURM_CPUS_PER_TASK:-}}
if [ -n "${FLUX_URI:-}" ]; then
    eval "set -- $options -- \"\$@\""
    exec flux run -n "$tasks" ${nodes:+-N "$nodes"} ${cores:+-c "$cores"} ${gpus:+-g "$gpus"} ${label:+--label-io} "$@"
fi
[ -z "$options$gpus" ] || refuse "options beyond -N, -n, -c and -l, without Flux,"
rank=0 result=0 running=''
while [ "$rank" -lt "$tasks" ]; do
    SLURM_PROCID=$rank SLURM_LOCALID=$rank SLURM_NTASKS=$tasks FLUX_TASK_RANK=$rank FLUX_JOB_SIZE=$tasks "$@" &
    running="$running $!"
    rank=$((rank + 1))
done
for process in $running; do
    wait "$process" || { code=$? && [ "$code" -le "$result" ] || result=$code; }
done
exit "$result"
