"""What Seatrial knows of each benchmark program: its input, its steps, its output.

Knows neither sites nor ReFrame.
"""
