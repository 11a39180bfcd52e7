"""df.dp: private queries about a data frame, as methods."""
