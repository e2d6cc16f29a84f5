"""One script per peer, run in the peer's own environment: reads rows, times the peer, tells the seconds."""
