"""Whether an engine gives what DuckDB gives: both corpora of the tests, of tame and of wild rows."""
