"""Frozen models of what travels on the wire and what is kept of it."""
