"""Everything that a person or a program reads: words, tables, colours, progress and JSON."""
