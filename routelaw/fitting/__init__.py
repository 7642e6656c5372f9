"""From a run table and a law to a fit, and to how far it may be trusted."""

from routelaw.fitting.fit import Fit, fit_law
from routelaw.fitting.points import Points, select_points

__all__ = ["Fit", "Points", "fit_law", "select_points"]
