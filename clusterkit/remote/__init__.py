"""Reach a host and run a script on it: over ssh (Fabric, Paramiko) or on this machine."""
