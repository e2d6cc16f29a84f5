"""The methods: one per file, each a thin shell around a solver that takes a tally."""
