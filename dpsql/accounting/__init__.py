"""Events, what they cost, the filters that add them up, and the ledger that keeps the account."""
