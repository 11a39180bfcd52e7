"""`dpsql serve`: analysts get SQL, never the data. docs/server.md is the manual."""
