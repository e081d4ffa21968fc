"""What runs on a host: Python 3.6, the standard library, and nothing else of clusterkit."""
