"""Node side of NIC profiles: puts settings on a node's interfaces and always takes them off again.

Runs on nodes that may have nothing but Python (3.6 or later) and the ``ethtool``, ``ip`` and
``tc`` programs: only the standard library is used, and nothing from the rest of Seatrial. It knows
no site file; what may be done is in the policy (``policy.py``).

The state machine is in ``session.py``; it sees interfaces through ``nic.py``, its memory through
``store.py`` and the processes of the node through ``owner.py``, so that each can be replaced.
"""
