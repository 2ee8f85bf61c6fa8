"""Node side: facts and error counters of an interface: link, FEC, PCIe slot, neighbour.

run.py records them before and after each step. Only the Python standard library is used, and no
privilege: the neighbour is what the health check, which is root, wrote into the state folder.
"""

import array
import fcntl
import json
import os
import re
import struct

SIOCETHTOOL = 0x8946
ETHTOOL_GSTRINGS, ETHTOOL_GSTATS, ETHTOOL_GSSET_INFO, ETHTOOL_GFECPARAM = 0x1B, 0x1D, 0x37, 0x50
ETH_SS_STATS = 1
NAME_B = 32  # ETH_GSTRING_LEN
MOST_STATISTICS = 20000
FEC = ("none", "auto", "off", "RS", "BaseR", "LLRS")  # bits of ETHTOOL_FEC_*
NET = "/sys/class/net"
SPEED_UNKNOWN = 2**32 - 1  # SPEED_UNKNOWN of ethtool.h, -1, as some kernels print it
NEIGHBOURS = "neighbours.json"  # of seatrial.nic.node.neighbours
#: The kernel's counters that move when frames are damaged or the link goes down. The others in the
#: folder ``statistics`` count frames that are lost for lack of buffers or of a receiver, and frames
#: that are longer than the MTU (rx_length_errors), which no cable makes.
KERNEL = (
    "rx_crc_errors", "rx_frame_errors", "tx_aborted_errors",
    "tx_carrier_errors", "tx_heartbeat_errors", "tx_window_errors", "collisions",
)  # fmt: skip
#: The same in the words of drivers: mlx5 rx_symbol_err_phy, ice rx_crc_errors.nic and link_down,
#: bnxt_en rx_fcs_err_frames, i40e port.illegal_bytes, e1000e rx_align_errors ...
DRIVER = re.compile(
    r"crc|fcs_err|symbol_err|align_err|jabber|illegal_byte|code_err|uncorrect|"
    r"link_down(_events)?(_phy)?$|pcs_err|block_err|local_fault|remote_fault"
)
NOT_OF_THE_WIRE = re.compile(r"^(tx|rx)_?queue|^q\d|^\[|csum|checksum|dropped|discard")


def read(path):
    try:
        with open(path) as stream:
            return stream.read().strip()
    except OSError:
        return ""


def number(text):
    return int(text) if text.isdigit() else None


def speed(interface):
    """The link speed in Mbit/s; None if the driver reports none, or the interface has no card.

    veth and tun report 10000 or 10, whatever they carry.
    """
    mbit_s = number(read("%s/%s/speed" % (NET, interface)))
    has_card = os.path.exists("%s/%s/device" % (NET, interface))
    return mbit_s if has_card and mbit_s is not None and mbit_s < SPEED_UNKNOWN else None


def ioctl(sock, interface, data):
    """The answer of ethtool's ioctl in ``data``, an array; False: the driver has none."""
    request = struct.pack("16sP", interface.encode(), data.buffer_info()[0])
    try:
        fcntl.ioctl(sock, SIOCETHTOOL, request)
    except OSError:
        return False
    return True


def statistics(sock, interface):
    """Name -> count of the driver's own statistics (``ethtool -S``)."""
    data = array.array("B", struct.pack("=IIQI", ETHTOOL_GSSET_INFO, 0, 1 << ETH_SS_STATS, 0))
    if not ioctl(sock, interface, data):
        return {}
    count = struct.unpack("=IIQI", data.tobytes())[3]
    if not 0 < count <= MOST_STATISTICS:
        return {}
    names = array.array("B", struct.pack("=III", ETHTOOL_GSTRINGS, ETH_SS_STATS, count))
    head = len(names)
    names.extend(bytes(NAME_B * count))
    values = array.array("B", struct.pack("=II", ETHTOOL_GSTATS, count) + bytes(8 * count))
    if not ioctl(sock, interface, names) or not ioctl(sock, interface, values):
        return {}
    text = names.tobytes()[head:]
    words = [text[at : at + NAME_B].split(b"\0")[0] for at in range(0, len(text), NAME_B)]
    counts = struct.unpack("=%dQ" % count, values.tobytes()[8:])
    return {
        word.decode(errors="replace").strip(): counts[at] for at, word in enumerate(words) if word
    }


def is_of_the_wire(name):
    """Whether a driver's statistic counts damaged frames or losses of the link."""
    name = name.lower()
    return bool(DRIVER.search(name)) and not NOT_OF_THE_WIRE.search(name)


def errors(sock, interface):
    """Counter -> count since boot of damaged frames and losses of the link."""
    folder = "%s/%s" % (NET, interface)
    counts = {name: number(read("%s/statistics/%s" % (folder, name))) for name in KERNEL}
    counts["carrier_down_count"] = number(read(folder + "/carrier_down_count"))
    for name, count in statistics(sock, interface).items():
        if is_of_the_wire(name) and name not in counts:
            counts[name] = count
    return {name: count for name, count in counts.items() if count is not None}


def fec(sock, interface):
    """The forward error correction in use, such as ``RS``; empty if the link has none."""
    data = array.array("B", struct.pack("=IIII", ETHTOOL_GFECPARAM, 0, 0, 0))
    if not ioctl(sock, interface, data):
        return ""
    active = struct.unpack("=IIII", data.tobytes())[1]
    return ",".join(name for bit, name in enumerate(FEC) if active >> bit & 1)


def slot(interface):
    """Speed and width of the card's PCIe link, now and at most; empty if it has none."""
    folder = os.path.realpath("%s/%s/device" % (NET, interface))
    if os.path.basename(folder).startswith("virtio"):
        folder = os.path.dirname(folder)
    facts = {}
    for key in ("current_link_speed", "current_link_width", "max_link_speed", "max_link_width"):
        text = read("%s/%s" % (folder, key))
        if text and not text.startswith("Unknown") and text != "0":
            facts[key.replace("link_", "pcie_")] = text
    return facts if len(facts) == 4 else {}


def neighbours(folder):
    """Interface -> the neighbour that the health check wrote into the node's state folder."""
    try:
        data = json.loads(read(os.path.join(folder, NEIGHBOURS)))["interfaces"]
    except (ValueError, KeyError, TypeError):
        return {}
    return data if isinstance(data, dict) else {}


def facts(sock, interface):
    """What the link is, for the evidence: keys without a value are left out."""
    folder, mbit_s = "%s/%s" % (NET, interface), speed(interface)
    known = {
        "link": "up" if read(folder + "/carrier") == "1" else "down",
        "speed_Mbit_s": mbit_s,
        "duplex": read(folder + "/duplex") if mbit_s else "",
        "fec": fec(sock, interface),
    }
    known.update(slot(interface))
    return {name: value for name, value in known.items() if value not in ("", None)}
