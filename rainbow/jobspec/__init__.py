"""Jobspec V1, canonical (RFC 14), nextgen and the simple form, read into one request model."""
