"""An audit of a schema on made-up people: does anybody move an answer further, or lose more, than is claimed?"""
