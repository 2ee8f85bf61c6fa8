"""What both labs share: names, files, daemons, networks of the nodes."""
