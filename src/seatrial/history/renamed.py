"""Names that changed, old name -> the name of today. The one place for such names.

Figures of an older trial belong to the series of today's names. Whoever renames a metric, a check
or a field of a record adds a line here. A change of this file rebuilds each index.
"""

from __future__ import annotations

METRICS = {
    "half_bandwidth_B": "n_half_B",
}
CHECKS = {
    "multi_stream": "tcp_streams",
    "pairs": "links",
    "stream": "tcp_stream",
}
#: fields of the records ``trial``, ``run`` and ``verdict``, and of what is in them
FIELDS = {
    "confirm": "reruns",
    "place": "location",
}
