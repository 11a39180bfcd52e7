"""An audit of a schema on made-up people: does anybody move an answer further, or lose more, than is claimed?"""

RUNS = 20_000
"""How often each question is answered with noise."""
DELTA = 0.01
"""Large enough that an audit of thousands of answers could see it."""
