"""A run that exists: its record and its logs on this machine, and what its nodes say, followed and merged."""
