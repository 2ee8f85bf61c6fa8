#!/bin/sh
# Slurm's TaskProlog of nodes with several processors: each task of a step gets processors of its own,
# the first one the node's first. Slurm's task/affinity would do that, but it takes the processors of a
# node for the first ones of the machine.
IFS=- read -r first last </sys/devices/system/cpu/online
number=$((${last:-$first} - first + 1))
each=${SLURM_CPUS_PER_TASK:-1}
[ "$each" -lt "$number" ] || exit 0
start=$((first + SLURM_LOCALID % (number / each) * each))
taskset -cp "$start-$((start + each - 1))" "$SLURM_TASK_PID" >/dev/null
