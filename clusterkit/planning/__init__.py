"""Hosts, facts and wishes become a plan: ranks, addresses, ports, environment, commands. Pure."""
