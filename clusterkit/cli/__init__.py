"""The commands: each parses, calls one use case, shows what came of it, and exits."""
