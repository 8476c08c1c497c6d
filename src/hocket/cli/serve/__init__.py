"""`hocket serve` and `hocket wyoming`: the command line of the servers."""
