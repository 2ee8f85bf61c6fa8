"""Node side of NIC profiles: applies settings to a node's interfaces and always restores them.

Runs on nodes that may have nothing but Python (3.6 or later) and the ``ethtool``, ``ip`` and
``tc`` programs: only the standard library is used, and nothing from the rest of Seatrial. It knows
no site file; what may be done is in the policy (``policy.py``).

``settings.py`` is the table of all settings. ``session.py`` is the state machine. It uses
``nic.py`` for interfaces, ``store.py`` for files and ``owner.py`` for processes; tests replace
these.
"""
