"""The commands, one module for each group.

In: arguments. Out: lines on standard output and an exit code.
`rainbow.cli.app` names and loads them; a command imports no other command group.
"""
