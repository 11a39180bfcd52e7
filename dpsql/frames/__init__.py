"""df.dp: private questions about a frame, in the frame's own vocabulary."""
