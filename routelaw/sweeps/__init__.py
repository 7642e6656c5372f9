"""From one file to many trained runs: grids over any field, executed here or on a cluster, continued at will."""
