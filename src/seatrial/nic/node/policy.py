"""The policy: the NIC profiles and interfaces of this node, as JSON compiled from the site file."""

import json
import os
import re
import socket
from typing import Any, Dict, List, Optional

from .errors import BadInput

DEFAULT_FILE = "/etc/seatrial/nic.json"
SCHEMA = 1
INTERFACE = re.compile(r"^[A-Za-z0-9._-]{1,15}\Z")


class Policy:
    """What ``nic.json`` says. Raises BadInput naming the file and field where it is wrong."""

    def __init__(self, data: Any, file: str = DEFAULT_FILE, hostname: Optional[str] = None) -> None:
        self.file = file
        self.hostname = hostname or short_hostname()
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise BadInput("%s: not a policy of schema %d: install it again" % (file, SCHEMA))
        for field, kind in (("feature_prefix", str), ("state_folder", str), ("protected", list),
                            ("nodes", dict), ("profiles", dict)):  # fmt: skip
            if not isinstance(data.get(field), kind):
                raise BadInput("%s: field %r is missing or not a %s" % (file, field, kind.__name__))
        self.data = data
        self.site = str(data.get("site", ""))
        self.digest = str(data.get("digest", ""))
        self.prefix = data["feature_prefix"]
        self.protected: List[str] = data["protected"]
        self.profiles: Dict[str, Dict[str, Any]] = data["profiles"]
        self.interfaces: List[str] = data["nodes"].get(self.hostname, [])
        if not self.prefix:
            raise BadInput("%s: field 'feature_prefix' is empty" % file)
        for interface in self.interfaces:
            if not isinstance(interface, str) or not INTERFACE.match(interface):
                raise BadInput(
                    "%s: nodes.%s: %r is no interface" % (file, self.hostname, interface)
                )

    @classmethod
    def load(cls, file: str = DEFAULT_FILE) -> "Policy":
        try:
            with open(file) as stream:
                return cls(json.load(stream), file)
        except OSError as error:
            raise BadInput("%s: %s" % (file, error.strerror))
        except ValueError as error:
            raise BadInput("%s: not JSON: %s" % (file, error))

    @property
    def folder(self) -> str:
        return self.data["state_folder"].replace("%n", self.hostname)

    @property
    def features(self) -> Dict[str, str]:
        """Slurm feature -> profile, of all profiles, also of those for other nodes."""
        return {str(profile.get("feature")): name for name, profile in self.profiles.items()}

    def profile(self, name: str) -> Dict[str, Any]:
        """A profile that is for this node. Raises BadInput."""
        profile = self.profiles.get(name)
        if profile is None:
            known = ", ".join(sorted(self.profiles)) or "none"
            raise BadInput("there is no NIC profile %r; known: %s" % (name[:64], known))
        if name != "default" and self.hostname not in profile.get("nodes", []):
            raise BadInput("NIC profile %s is not for node %s" % (name, self.hostname))
        return profile


def short_hostname() -> str:
    # Slurm's name of the node, which may differ from the host name.
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname().split(".")[0]
