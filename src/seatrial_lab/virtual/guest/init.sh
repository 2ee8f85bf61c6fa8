#!/bin/sh
# First program of the guest: load the drivers, build the root file system (an overlay of the host's
# read-only file system, some of its files in memory, and a tmpfs) and become the agent. After the
# drivers are loaded, init waits for the host, which saves the guest in this state and later starts
# it from there (snapshot.py).
fail() {
    echo "init: $1"
    poweroff -f
}
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
release=$(uname -r)
while read -r module; do
    insmod "/lib/modules/$release/$module" || echo "init: $module cannot be loaded"
done </modules.list
# A card whose driver refuses it has no interface. Such a guest is not saved.
refused=
for card in /sys/bus/pci/devices/*; do
    case $(cat "$card/class") in
    0x0200*) [ -e "$card/driver" ] || refused="$refused ${card##*/}" ;;
    esac
done
if [ -n "$refused" ]; then
    dmesg | tail -n 40
    for card in $refused; do
        dmesg | grep -F "$card" | tail -n 3 | while read -r line; do echo "init: $line"; done
    done
    fail "no driver has taken the network card$refused"
fi
# What the nodes open at each step of Slurm is in memory: see hot_files.py.
mount -t tmpfs -o mode=755 tmpfs /hot && tar -xzf /hot.tar.gz -C /hot ||
    fail "no memory for the programs of the nodes"
rm /hot.tar.gz
for name in /sys/class/virtio-ports/*/name; do
    [ "$(cat "$name")" = seatrial ] || continue
    line=/dev/${name%/name}
    line=/dev/${line##*/}
done
echo warm >"$line"
# The read returns at once while the host is not connected to the line.
until read -r seatrial_source seatrial_config <"$line"; do sleep 1; done
mount -t 9p -o trans=virtio,version=9p2000.L,cache=loose,ro,msize=512000 root /lower ||
    fail "the host's file system cannot be mounted"
mount -t tmpfs -o size=60%,mode=755 tmpfs /upper
mkdir /upper/changes /upper/work
mount -t overlay -o lowerdir=/hot:/lower,upperdir=/upper/changes,workdir=/upper/work overlay /new ||
    fail "no layer above the host's file system"
mkdir -p /new/usr/lib/modules
cp -a "/lib/modules/$release" /new/usr/lib/modules/
while read -r folder; do
    mount -o bind "/hot$folder" "/new$folder" || fail "no $folder in memory"
done </hot.folders
while read -r folder; do
    mount -o bind "/lower$folder" "/new$folder" || fail "$folder is not seen"
done </cold.folders
for folder in proc sys dev; do mount --move "/$folder" "/new/$folder"; done
mkdir -p /new/dev/pts /new/dev/shm
mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /new/dev/pts
for folder in run tmp var/tmp dev/shm; do mount -t tmpfs -o mode=1777 tmpfs "/new/$folder"; done
chmod 755 /new/run
# A checkout in one of these folders must not be covered.
checkout=${seatrial_source%/src}
case $checkout in
/run/* | /tmp/* | /var/tmp/* | /dev/shm/*)
    mkdir -p "/new$checkout"
    mount -o bind "/lower$checkout" "/new$checkout" || fail "$checkout is not seen"
    ;;
esac
hostname guest
exec switch_root /new /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
    PYTHONPATH="$seatrial_source" PYTHONDONTWRITEBYTECODE=1 \
    /usr/bin/python3 -P -S -m seatrial_lab.virtual.guest.agent "$seatrial_config"
