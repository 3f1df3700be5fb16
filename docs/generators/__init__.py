"""What `generate.py` writes, a module for each page."""
