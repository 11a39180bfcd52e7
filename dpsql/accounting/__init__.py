"""Accounting: privacy events, their privacy loss, the filters that compose it, the ledger that records it."""
