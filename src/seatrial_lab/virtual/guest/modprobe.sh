#!/bin/sh
# modprobe of a virtual lab's nodes. All nodes share one kernel, so they can only reload a NIC driver
# together. "-r" unbinds the driver from this node's cards only. A load waits until every node has
# unbound its cards; the first node then loads the driver, and all nodes must use the same
# parameters. A node sees the same as a real node: its cards disappear and return with the new
# parameters. All other calls go to the real modprobe.
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
        echo "modprobe: other nodes still use $module: all of its nodes must reload it" >&2
        exit 1
    fi
    sleep 0.05
done
[ ! -d "$bus" ] || "$real" -r "$module" || exit 1
"$real" "$@" || exit 1
echo "$*" >"$shared/$module.loaded"
rm -f "$shared/$module"/*
