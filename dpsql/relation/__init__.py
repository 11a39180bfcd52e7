"""The relational algebra that every query is lowered to: nodes, facts about their columns, engine SQL."""
