"""The labs: clusters on one machine, on which Seatrial is tried and tested.

Imports ``seatrial``. Of ``seatrial`` only the command line imports this.
"""
