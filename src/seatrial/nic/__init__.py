"""NIC profiles: named sets of NIC settings that a job asks for and a node always undoes.

``profile`` is their form in a site file, ``library`` the ones that come with Seatrial,
``inheritance`` what a profile amounts to with its base, ``conflicts`` settings of one profile that
contradict each other. What runs on nodes is in ``node/``. Where profiles fit on a site is in
``seatrial.site``: ``profiles``, ``effects``, ``nic_policy``, ``validate_profiles``.
"""
