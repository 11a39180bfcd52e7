"""The ledger: every charge, durable before any data is read."""
