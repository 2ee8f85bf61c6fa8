"""The switch port at the other end of each cable, from lldpd where it runs, for the evidence.

Only root can ask lldpd. The health check writes the answer into the state folder, where the jobs of
all users can read it. The words are those of the switch: they are cut, and only plain text is kept.
"""

import json
import os
import time
from typing import Any, Dict, List

from . import programs
from .store import Store

SOCKETS = ("/run/lldpd.socket", "/run/lldpd/lldpd.socket")
FILE = "neighbours.json"
TIMEOUT_S = 2.0
MOST_B = 1 << 20
MOST_INTERFACES = 256
MOST_TEXT = 100


def of(answer: str) -> Dict[str, Dict[str, str]]:
    """Interface -> switch and port, from what ``lldpctl -f json0`` prints; at most one each."""
    neighbours: Dict[str, Dict[str, str]] = {}
    try:
        lists = [answered.get("interface", []) for answered in json.loads(answer)["lldp"]]
        for entry in [one for many in lists for one in many][:MOST_INTERFACES]:
            known = {
                "switch": _first(entry, "chassis", ("name", "id", "mgmt-ip")),
                "port": _first(entry, "port", ("descr", "id")),
            }
            known = {key: text for key, text in known.items() if text}
            if known and isinstance(entry.get("name"), str):
                neighbours.setdefault(entry["name"], known)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
    return neighbours


def _first(one: Dict[str, Any], part: str, keys: Any) -> str:
    """The first value of the part under one of the keys, as plain text."""
    parts: List[Dict[str, Any]] = one.get(part) or []
    for key in keys:
        for entry in (parts[0].get(key) or []) if parts else []:
            text = programs.plain(str(entry.get("value", "")), MOST_TEXT).strip()
            if text:
                return text
    return ""


def record(store: Store) -> None:
    """Write the neighbours into the state folder, where lldpd runs. Raises OSError."""
    if not any(os.path.exists(path) for path in SOCKETS):
        return
    answer = programs.run(["lldpctl", "-f", "json0"], timeout=TIMEOUT_S)
    if answer.code or len(answer.out) > MOST_B:
        return
    neighbours = of(answer.out)
    try:
        with open(store.path(FILE)) as stream:
            if json.load(stream)["interfaces"] == neighbours:
                return
    except (OSError, ValueError, KeyError, TypeError):
        pass
    store.write(FILE, json.dumps({"time": time.time(), "interfaces": neighbours}))
