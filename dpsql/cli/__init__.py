"""The `dpsql` command. `app` lists the commands; each group of them is a file."""
