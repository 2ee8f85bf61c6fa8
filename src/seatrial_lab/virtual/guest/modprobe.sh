#!/bin/sh
# modprobe of a virtual lab's nodes: they share one kernel, so a NIC driver is loaded anew for all of
# them at once. "-r" takes the driver off this node's cards only; loading waits until every node has
# done so, and the first of them then loads it with the parameters that all must have asked for. So
# a node sees what a node of its own would: its cards go, and come back as the parameters say.
# Anything else is the real program's.
real=/usr/lib/seatrial/modprobe
shared=/var/lib/seatrial/modules
module=$1
[ "$1" = -r ] && module=$2
case $module in
igb | e1000 | e1000e | vmxnet3) ;;
*) exec "$real" "$@" ;;
esac
bus=/sys/bus/pci/drivers/$module
read -r node </proc/sys/kernel/hostname
mkdir -p "$shared/$module"
if [ "$1" = -r ]; then
    : >"$shared/$module/$node"
    for link in /sys/class/net/*/device; do
        card=$(readlink -f "$link")
        [ "$(readlink -f "$link/driver")" = "$(readlink -f "$bus")" ] || continue
        echo "${card##*/}" >"$bus/unbind" || exit 1
    done
    exit 0
fi
exec 9>"$shared/$module.lock"
flock 9
if [ ! -e "$shared/$module/$node" ]; then
    [ "$(cat "$shared/$module.loaded" 2>/dev/null)" = "$*" ] && exit 0
    echo "modprobe: another node loaded $module with other parameters" >&2
    exit 1
fi
tries=0
while ls -d "$bus"/0000:* >/dev/null 2>&1; do
    tries=$((tries + 1))
    if [ "$tries" -gt 1200 ]; then
        echo "modprobe: other nodes still use $module: all of its nodes must load it anew" >&2
        exit 1
    fi
    sleep 0.05
done
[ ! -d "$bus" ] || "$real" -r "$module" || exit 1
"$real" "$@" || exit 1
echo "$*" >"$shared/$module.loaded"
rm -f "$shared/$module"/*
