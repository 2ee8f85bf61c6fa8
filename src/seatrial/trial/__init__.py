"""One trial: what is planned, how it is run, and what is collected from it."""
