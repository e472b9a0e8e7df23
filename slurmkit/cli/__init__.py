"""The command line: each file parses, calls one function and prints."""
