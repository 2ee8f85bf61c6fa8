"""Why an application of a kind is given one configuration and not another: the published results.

Each is put into the script as a comment. The figures are those of the documents named, on the
machines of their day: they give the direction, not the size, of what to expect.
"""

from __future__ import annotations

DRIVERS = (
    "Celebioglu, Leng and Mashayekhi, Optimizing Linux Cluster Performance by Exploring the "
    "Correlation between Application Characteristics and Gigabit Ethernet Device Parameters, 2004"
)
VALUE_CLUSTER = "Eadline and Layton, the value cluster Kronos, Cluster Monkey"
RAILS = (
    "Strazdins, Alexander and Barr, Performance Enhancement of SMP Clusters with Multiple Network "
    "Interfaces using Virtualization, 2006"
)

KINDS: dict[str, str] = {
    "compute-bound": (
        "Little communication, much computation: what the network costs in CPU time counts, so the "
        "driver settings that cost least won even with worse latency and bandwidth (HPL on 32 "
        "nodes: 225 GFLOPS with bcm5700, 133 with tg3, whose latency was 20 us lower; NPB FT: 1.34 "
        f"times as fast). {DRIVERS}."
    ),
    "communication-bound": (
        "Much of the time goes into communication: the settings with the better latency and "
        "bandwidth won even though they cost more CPU (NPB IS, 38 % communication, with bcm5700: "
        f"0.66 of its rate with tg3). {DRIVERS}."
    ),
    "latency-bound": (
        "Many small messages, each waited for: most of the latency was the delay of interrupts "
        "(NetPIPE: 117 us by default, 29 us with InterruptThrottleRate=0 and RxIntDelay=0). "
        f"{VALUE_CLUSTER}."
    ),
}
UNKNOWN = (
    "Say by --kind what it is: not latency or bandwidth alone, but an application's share of "
    f"communication tells what suits it. {DRIVERS}."
)

#: what is known of a kernel of NPB
NPB: dict[str, str] = {
    "is": "NPB IS spends 38 % of its time communicating, the most of those measured",
    "cg": "NPB CG communicates (23 %) and computes much: the driver made no difference",
    "lu": "NPB LU spends 4 % of its time communicating and gained from the cheaper driver",
    "ft": "NPB FT was 1.34 times as fast with the cheaper driver",
    "ep": "NPB EP sends next to nothing",
    "mg": "NPB MG has no figure in that study; it is taken for compute-bound",
    "bt": "NPB BT was nearly as fast on Gigabit Ethernet as on Myrinet",
    "sp": "NPB SP was nearly as fast on Gigabit Ethernet as on Myrinet",
}
INDEPENDENT_RAILS = (
    "Independent interfaces beat one bond of them, by more as pairs are added (two pairs: 172 MB/s "
    "against 144; four: 296 against 256, ping-pong at 4 MB), with each process bound to a CPU and "
    f"to an interface. {RAILS}."
)
