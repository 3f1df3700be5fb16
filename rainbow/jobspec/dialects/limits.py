"""Bounds of a jobspec document, the same for JSON, YAML and mappings."""

MAX_BYTES = 1 << 20
"""The largest document taken, in bytes of UTF-8. Batch scripts travel inside jobspecs."""

MAX_DEPTH = 64
"""The deepest nesting of lists and mappings taken."""

MAX_VALUES = 50_000
"""The most values in a YAML document or a mapping; those reached twice (aliases) count twice.

It keeps what shared parts can grow to, and the time an evil document can cost, within bounds.
"""

MAX_INT_DIGITS = 19
"""Whole numbers have at most this many digits (they fit 64 bits)."""
