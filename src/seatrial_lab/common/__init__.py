"""Code of both labs: names, files, daemons and networks of the nodes."""
