"""The closed list of scalar functions: what each result can be, and how it is written so that it never fails."""
