"""One detector per conclusion, grouped by what it is about; `paceline.explain` runs and orders them."""
