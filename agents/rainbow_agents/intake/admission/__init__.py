"""Admission policies, the plugin kind `rainbow.admission`: the site decides which jobs it takes.

In: a job and the load of the cluster. Out: a refusal with a code, or none.
The contract is `policies.Admission`.
"""
