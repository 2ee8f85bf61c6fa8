"""Reading files of the node below a root folder: its own ``/``, or another one in a test."""

import os
from typing import List

from . import programs


class Tree:
    """Paths below ``root``. What cannot be read is empty."""

    def __init__(self, root: str = "/") -> None:
        self.root = root

    def path(self, path: str) -> str:
        return os.path.join(self.root, path.lstrip("/"))

    def text(self, path: str) -> str:
        return programs.read_text(self.path(path))[1]

    def names(self, path: str) -> List[str]:
        """The names in a folder, sorted."""
        try:
            return sorted(os.listdir(self.path(path)))
        except OSError:
            return []
