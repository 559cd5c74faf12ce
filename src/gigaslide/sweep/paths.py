"""Where a sweep writes, relative to the project's folder."""

from pathlib import Path

SWEEP = Path("results/sweep")
TRIALS = SWEEP / "trials"
TRIALS_JSON = SWEEP / "trials.json"
TRIALS_CSV = SWEEP / "trials.csv"
RECOMMENDATION = SWEEP / "recommendation.json"
# Of the processes that work on a study here.
OWNERS = Path("mlruns/sweep-owners")
