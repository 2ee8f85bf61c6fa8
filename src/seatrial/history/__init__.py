"""What changed over time: an index over trial folders, and what is read from it.

It decides nothing about a trial: its verdict is in its folder. The index is derived from the
folders, and never the only copy of anything.
"""
