"""What each free stage makes of a question, for people who want to see inside. No data, no budget."""
