"""From a parsed query to relations and releases: names are resolved, every clause is lowered or refused."""
