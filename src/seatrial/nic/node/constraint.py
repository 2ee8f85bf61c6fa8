"""The NIC profile that a job asks for, parsed from its ``--constraint``.

A user wrote the text and root's Prolog reads it: no part of it is passed to a shell, a file name or
a program. It is parsed strictly if it names a NIC profile, and ignored otherwise.
"""

import re
from typing import Dict, Optional

from .errors import BadInput

MAX_LENGTH = 4096
_PLAIN = re.compile(r"^[A-Za-z0-9_.=&, -]*\Z")
_WORDS = re.compile(r"[A-Za-z0-9_.=]+")


def asked(text: str, features: Dict[str, str], prefix: str) -> Optional[str]:
    """The name of the profile that a constraint asks for, or None.

    ``features`` maps a Slurm feature to a profile's name. Raises BadInput with a sentence for the
    operator where a NIC profile is named in a way that does not say exactly one.
    """
    named = [word for word in _WORDS.findall(text) if word in features or word.startswith(prefix)]
    if not named:
        return None
    if len(text) > MAX_LENGTH:
        raise BadInput("the constraint is longer than %d characters" % MAX_LENGTH)
    if not _PLAIN.match(text):
        raise BadInput(
            "the constraint names the NIC profile %s among alternatives, counts or other signs: "
            "only names joined by & can be used with one" % _safe(named[0])
        )
    unknown = [word for word in named if word not in features]
    if unknown:
        raise BadInput("the constraint asks for %s, which is no NIC profile" % _safe(unknown[0]))
    profiles = sorted({features[word] for word in named})
    if len(profiles) > 1:
        raise BadInput("the constraint asks for several NIC profiles: " + ", ".join(profiles))
    return profiles[0]


def _safe(word: str) -> str:
    return word if len(word) <= 64 else word[:61] + "..."
