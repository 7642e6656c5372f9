"""The waist of the house: a table of losses, wherever it comes from."""
