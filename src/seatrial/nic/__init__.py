"""NIC profiles: named sets of NIC settings that a job asks for and a node always undoes.

``profile`` is their form in a site file, ``ready`` the ones that come with Seatrial, ``resolve``
what a profile amounts to with its base, ``agree`` what must fit the rest of the site, ``reach``
where they have no effect, ``policy`` what is told to the nodes. What runs on nodes is in ``node/``.
"""
