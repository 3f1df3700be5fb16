"""Which tests go together to one process of pytest-xdist."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

#: Folders whose tests share what was started once.
TOGETHER = ("tests/campaign/",)
#: Tests that share nothing and take long, so that no process is left alone with all of them.
APART = ("tests/docs/test_documents.py", "tests/faults/test_programs.py", "tests/security/test_secrets_of_programs.py",
         "tests/system/")  # fmt: skip


class ByModule(LoadScopeScheduling):  # type: ignore[misc]
    """A module's tests in one process: what they share is started once. In the order of the files."""

    def _split_scope(self, nodeid: str) -> str:
        for folder in TOGETHER:
            if nodeid.startswith(folder):
                return folder
        return nodeid if nodeid.startswith(APART) else nodeid.partition("::")[0]
