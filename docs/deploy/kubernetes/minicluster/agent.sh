#!/bin/sh
# The sidecar in each pod of a MiniCluster; the one beside the lead broker is the agent. `stop` is its preStop hook.
set -eu
[ "${JOB_COMPLETION_INDEX:-0}" = 0 ] || [ "${1:-run}" = run ] || exit 0
if [ "${1:-run}" = stop ]; then
  # No new jobs, then none at all: what waits for it goes to other clusters, and the name is free for the next MiniCluster.
  rainbow clusters drain "$RAINBOW_CLUSTER_NAME" --reason "its MiniCluster is deleted" || true
  rainbow clusters delete "$RAINBOW_CLUSTER_NAME" || true
  exit 0
fi
if [ "${JOB_COMPLETION_INDEX:-0}" != 0 ]; then
  exec sleep infinity
fi
umask 077
socket=${RAINBOW_FLUX_SOCKET:-/mnt/flux/view/run/flux/local}
until [ -S "$socket" ]; do
  sleep 1
done
FLUX_URI="local://$socket"
PATH="/mnt/flux/view/bin:$PATH"
export FLUX_URI PATH
exec rainbow-agent run --state-dir /tmp/rainbow-agent
