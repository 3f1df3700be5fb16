"""What every executor of the agent must do, as tests: subclass, give the fixture `rig`, and pytest runs them.

    class TestMine(ExecutorContract):
        @pytest.fixture
        def rig(self, tmp_path):
            yield Rig(lambda listener: MyExecutor(context, listener))

Every job of `Rig.work` runs `sh -c SCRIPT`. An executor that runs nothing says so with `runs = False`.
"""

from rainbow_agents.executors.testing.contract import ExecutorContract
from rainbow_agents.executors.testing.rig import PATIENCE, Rig, v1
from rainbow_agents.executors.testing.running import RunningExecutorContract

__all__ = ["PATIENCE", "ExecutorContract", "Rig", "RunningExecutorContract", "v1"]
