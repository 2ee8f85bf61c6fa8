"""What the tests of the Slurm side share besides their fixtures."""

from pathlib import Path

#: a lab whose profiles use what veth and tap interfaces have
HARBOUR = (Path(__file__).parent / "data" / "harbour" / "site.yaml").resolve()
