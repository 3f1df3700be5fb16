"""What people read on a terminal: tables, explanations and job records.

In: records and views of the client. Out: lines on standard output.
Called by the commands; imports no command.
"""
