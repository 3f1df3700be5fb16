"""Contract tests for plugins of others.

In: a broker under test. Out: test classes for pytest.
Called by test suites only.
"""
