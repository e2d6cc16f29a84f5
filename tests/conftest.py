from hypothesis import HealthCheck, settings

from tests.sizes import FULL

# The same examples on every machine and every run: a failure can always be repeated.
settings.register_profile(
    "qacal",
    derandomize=True,
    deadline=None,
    max_examples=60 if FULL else 20,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("qacal")
