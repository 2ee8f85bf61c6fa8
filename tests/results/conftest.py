"""Time per example says nothing on a machine that also runs a lab: no deadlines here."""

from hypothesis import HealthCheck, settings

settings.register_profile("judging", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("judging")
