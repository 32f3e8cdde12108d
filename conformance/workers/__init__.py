"""Workers: the protocol between the host and the processes that engines run in."""
