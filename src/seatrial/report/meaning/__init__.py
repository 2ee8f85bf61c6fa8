"""The chapter "What it means": the conclusions of ``seatrial.analysis`` in sentences and tables.

Each sentence has its figure with the interval; under it stand what it was made from and what would
change it. ``sections`` has the order of the parts, each other module one part, and ``figures`` the
pictures.
"""
