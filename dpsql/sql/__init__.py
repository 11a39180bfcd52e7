"""From a parsed query to relations and releases: every name is looked up, every clause has a meaning or is refused."""
