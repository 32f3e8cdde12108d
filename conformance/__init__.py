"""Do two implementations of the same language model compute the same thing, and if not, what differs?"""
