"""One profile for all: repeatable by default; `HYPOTHESIS_PROFILE=search` looks further."""

import os

from hypothesis import HealthCheck, settings

CALM = [HealthCheck.too_slow]
settings.register_profile("repo", derandomize=True, deadline=None, suppress_health_check=CALM)
settings.register_profile(
    "search", max_examples=2_000, deadline=None, print_blob=True, suppress_health_check=CALM
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repo"))
