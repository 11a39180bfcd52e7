"""How things look in a notebook: plain values in, HTML out. No scripts, nothing from elsewhere, everything escaped."""
