"""The programs of experiments/miniature import each other by name, as they do when one of them is run."""

import sys
from pathlib import Path

MINIATURE = Path(__file__).parents[2] / "experiments" / "miniature"
sys.path.insert(0, str(MINIATURE))
