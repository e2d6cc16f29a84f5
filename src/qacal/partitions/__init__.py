"""beta_bin: from a vector per row to a group per row."""
