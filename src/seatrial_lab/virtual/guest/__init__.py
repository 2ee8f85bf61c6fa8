"""The programs of the guest: its init script, and the agent, which is its first process."""
