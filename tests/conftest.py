"""Settings of the whole suite."""

import os

from hypothesis import settings

# A busy machine stretches any example; a time limit on each would only make honest tests flaky.
# Under CI Hypothesis loads its own profile, which has none either and is derandomised.
settings.register_profile("patient", deadline=None)
if os.environ.get("CI") != "true":
    settings.load_profile("patient")
