"""An irreducible loss plus one power of N and E: four parameters, no saturation, no interaction."""

from dataclasses import replace

from routelaw.laws.irreducible import LAW as IRREDUCIBLE

LAW = replace(
    IRREDUCIBLE,
    name="irreducible-power",
    formula="L = L∞ + A·N^a·E^b",
    source="routelaw; after Hoffmann et al. 2022",
    saturation=None,
)
