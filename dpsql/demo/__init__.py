"""The demo: a made-up shop, and private questions about it."""
