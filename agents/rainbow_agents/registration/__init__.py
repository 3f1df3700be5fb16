"""Registration of the cluster, and requests that the scheduler sends to it.

In: a resource graph and a token. Out: a registration, or an error that says what to do.
Call `client.RegistrationClient`; `enrollment` serves agents without a token.
"""
