"""What runs inside the guest: its init script and the agent that is its first process."""
