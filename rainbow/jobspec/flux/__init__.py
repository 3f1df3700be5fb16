"""From a request to what Flux runs: jobspec version 1, with the script of several tasks.

In: `rainbow.jobspec.request.Jobspec`. Out: a document that `flux submit` takes.
Call `v1.V1Translator` (the plugin kind `rainbow.translators`).
"""
