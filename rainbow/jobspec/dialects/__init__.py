"""Dialects of jobspecs: text or documents in, one `rainbow.jobspec.request.Jobspec` out.

In: canonical, nextgen, nextgen-list and simple jobspecs, as YAML, JSON or decoded documents.
Out: the request model. Call `reader.read`; each dialect has one module.
"""
