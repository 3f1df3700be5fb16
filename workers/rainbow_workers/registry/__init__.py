"""The registrar: control requests in, replies out.

In: requests on the control queue. Out: changes in the store, commands to agents, replies.
Call `registrar.Registrar`, a worker; `operations` has what each request does.
"""
