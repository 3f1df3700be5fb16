"""The agent with the real scheduler side, all in one process on the memory broker and store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agentrig import Agents, ended, shell, submit
from rainbow.errors import Conflict, Denied
from rainbow_agents.agent import Agent
from resource_texts import graph
from rig import Rig, eventually, resources


def test_a_job_runs_and_its_end_is_known(rig: Rig, agents: Agents, tmp_path: Path) -> None:
    agents.start(executor="local")
    answer = rig.submit(jobspec=shell(f"echo hello; echo x >> {tmp_path}/ran"), name="greeting")
    assert (answer["status"], answer["cluster"]) == ("assigned", "blue")
    record = rig.until(answer["id"], "completed", 60)
    assert record["returncode"] == 0
    assert record["output"] == "hello\n"
    assert record["flux_id"].startswith(answer["id"])
    assert [h["state"] for h in record["history"]][-3:] == ["accepted", "running", "completed"]
    assert (tmp_path / "ran").read_text() == "x\n"


def test_failure_comes_with_its_code(rig: Rig, agents: Agents) -> None:
    agents.start(executor="local")
    answer = rig.submit(jobspec=shell("echo bad >&2; exit 7"))
    record = rig.until(answer["id"], "failed", 60)
    assert record["returncode"] == 7
    assert "bad" in record["output"]


def test_a_thousand_jobs_each_end_once(rig: Rig, agents: Agents) -> None:
    agents.start(graph=resources(nodes=64, cores=64))
    records = ended(rig, submit(rig, 1000, lambda n: shell(f"echo {n}")))
    assert {r["state"] for r in records.values()} == {"completed"}
    assert {r["attempt"] for r in records.values()} == {1}


def test_two_clusters_in_one_process(rig: Rig, agents: Agents) -> None:
    agents.start("blue", graph=resources(nodes=2, cores=4))
    agents.start("green", graph=resources(nodes=2, cores=32, host="g"))
    record = ended(rig, submit(rig, 1, lambda _: shell("true", cores=16)))
    assert [r["cluster"] for r in record.values()] == ["green"]


def test_state_is_reported(agents: Agents) -> None:
    agents.start(graph=resources(nodes=3, cores=4), values={"cost_per_node_hour": 2.5})
    known = agents.known("blue")
    assert known["state"]["nodes_free"] == 3
    assert known["state"]["cores_free"] == 12
    assert known["state"]["cost_per_node_hour"] == 2.5
    assert known["totals"]["node"] == 3


def test_a_rejected_job_runs_elsewhere(rig: Rig, agents: Agents) -> None:
    agents.start("blue", allowed_users=["somebody-else"])
    agents.start("green", graph=resources(host="g"))
    for record in ended(rig, submit(rig, 6, lambda _: shell("true"))).values():
        assert (record["state"], record["cluster"]) == ("completed", "green")


def test_the_reason_of_every_refusal_is_kept(rig: Rig, agents: Agents) -> None:
    agents.start(allowed_users=["somebody-else"])
    answer = rig.submit(jobspec=shell("true"))
    record = rig.until(answer["id"], "unsatisfiable", 60)
    assert any(h["state"] == "rejected" and h["code"] == "policy" and "alice" in h["detail"] for h in record["history"])


def test_missing_folder_is_no_fit(rig: Rig, agents: Agents) -> None:
    agents.start(executor="local")
    answer = rig.submit(jobspec=shell("true", cwd="/not/there/at/all"))
    record = rig.until(answer["id"], "unsatisfiable", 60)
    assert any(h.get("code") == "no-fit" and "/not/there/at/all" in h["detail"] for h in record["history"])


def test_cancel_while_running(rig: Rig, agents: Agents) -> None:
    agents.start(executor="local", options={"kill_after": 0.5})
    answer = rig.submit(jobspec=shell("sleep 300"))
    rig.until(answer["id"], "running", 60)
    rig.rpc.call({"op": "cancel", "ids": [answer["id"]], "reason": "changed my mind"})
    record = rig.until(answer["id"], "cancelled", 60)
    assert record["detail"] == "changed my mind"


def test_cancel_while_queued_here(rig: Rig, agents: Agents) -> None:
    agents.start(executor="local", graph=resources(nodes=1, cores=1), options={"kill_after": 0.5})
    first = rig.submit(jobspec=shell("sleep 300"))
    rig.until(first["id"], "running", 60)
    second = rig.submit(jobspec=shell("echo never"))
    rig.until(second["id"], "accepted", 60)
    rig.rpc.call({"op": "cancel", "ids": [second["id"], first["id"]]})
    for answer in (first, second):
        assert rig.until(answer["id"], "cancelled", 60)["state"] == "cancelled"


def test_cancel_before_an_agent_is_there(rig: Rig, agents: Agents, tmp_path: Path) -> None:
    agents.start(executor="local").stop()
    answer = rig.submit(jobspec=shell(f"echo x >> {tmp_path}/ran"))
    rig.rpc.call({"op": "cancel", "ids": [answer["id"]]})
    agents.start(executor="local")
    rig.until(answer["id"], "cancelled", 60)
    assert not (tmp_path / "ran").exists()


def test_an_agent_that_starts_again_keeps_its_registration(agents: Agents) -> None:
    first = agents.start()
    before = first.registrar.current
    assert first.stop() == 0
    second = agents.start()
    assert second.registrar.current is not None
    assert before is not None
    assert second.registrar.current.registration == before.registration


def test_a_stranger_with_the_same_name_is_refused(rig: Rig, agents: Agents, tmp_path: Path) -> None:
    agents.start()
    other = Agents(rig, tmp_path / "elsewhere")
    stranger = other.start(taking=False)
    eventually(lambda: stranger.failure, 60)
    assert isinstance(stranger.failure, Conflict)
    assert stranger.stop() == Conflict.exit_code


def test_a_bad_token_ends_the_agent_with_code_3(rig: Rig, agents: Agents, tmp_path: Path) -> None:
    from agentrig import settings

    made = settings(rig, tmp_path / "bad", "blue")
    assert made.token is not None
    agent = Agent(made.model_copy(update={"token": type(made.token)("not-a-token")}))
    agent.start()
    assert agent.wait(60)
    assert agent.stop() == Denied.exit_code == 3


def test_a_changed_graph_is_registered_on_reload(rig: Rig, agents: Agents) -> None:
    from agentrig import settings

    agent = agents.start(graph=resources(nodes=2))
    changed = settings(rig, agents.folder / "agents", "blue", graph=resources(nodes=5), max_queued=0)
    agent.reload(changed)
    eventually(lambda: agents.known("blue")["totals"]["node"] == 5, 60)
    record = rig.until(rig.submit(jobspec=shell("true"), hold=0)["id"], "held", 60)
    assert record["code"] == "waiting", "no job may wait there, and the scheduler knows it"


def test_a_graph_that_changed_a_little_is_patched(rig: Rig, agents: Agents) -> None:
    from agentrig import settings

    agent = agents.start(graph=graph("cluster(8xnode(4xcore))"))
    changed = graph("cluster(7xnode(4xcore),node(3xcore))")
    agent.reload(settings(rig, agents.folder / "agents", "blue", graph=changed))
    eventually(lambda: agents.known("blue")["totals"]["core"] == 31, 60)
    assert agent.factory.known.last.graph.patches == 1


def test_deleted_and_registered_anew_by_itself(rig: Rig, agents: Agents) -> None:
    """Losing the store loses no cluster: the next report that is refused makes the agent register."""
    agents.start(report_every=0.5)
    rig.rpc.call({"op": "delete", "cluster": "blue"})
    assert agents.known("blue")["alive"]
    assert rig.until(rig.submit(jobspec=shell("true"))["id"], "completed", 60)


def test_stop_gives_back_what_is_not_submitted(rig: Rig, agents: Agents) -> None:
    """An agent whose executor is down holds nothing: the next one runs the jobs, once."""
    from rainbow_agents.executors.base import Down

    class Away:
        def __init__(self, _context: Any, listener: Any) -> None:
            listener(Down("not today"))

        def usage(self) -> Any:
            from rainbow_agents.executors.base import ExecutorDown

            raise ExecutorDown("not today")

        def recover(self, _expected: Any) -> Any:
            return self.usage()

        def close(self) -> None:
            pass

    first = agents.start(taking=False, parts={"executor": Away})
    known = agents.known("blue")
    assert known["state"]["agent_state"] == "executor-down"
    assert known["state"]["nodes_free"] == 0
    ids = submit(rig, 5, lambda _: shell("true"))
    assert first.stop() == 0
    agents.start()
    assert {r["state"] for r in ended(rig, ids).values()} == {"completed"}


def test_a_full_cluster_gets_no_more_until_there_is_room(rig: Rig, agents: Agents) -> None:
    small: dict[str, Any] = {"graph": resources(nodes=1, cores=1), "report_every": 0.5}
    limit = [{"name": "max-queued", "options": {"limit": 2}}]
    agents.start("blue", admission=limit, options={"run_s": 1.5}, **small)
    agents.start("red", options={"run_s": 0.3}, **small)
    sent = [rig.send(jobspec=shell("true"), selection={"name": "spill-over", "options": {"order": ["blue"]}}, hold=60)]
    sent += [rig.send(jobspec=shell("true"), selection={"name": "first"}, hold=60) for _ in range(11)]
    ids = [rig.answer(c, 60)["id"] for c in sent]
    most = 0

    def over() -> bool:
        nonlocal most
        blue = next(c for c in rig.rpc.call({"op": "clusters"})["clusters"] if c["name"] == "blue")
        most = max(most, blue["state"].get("jobs_pending", 0))
        return all(
            j is not None and j["state"] == "completed" for j in rig.rpc.call({"op": "status", "ids": ids})["jobs"]
        )

    eventually(over, 120, every=0.1)
    assert 1 <= most <= 2, "the scheduler saw the queue there, and it was never longer than allowed"
    records = rig.rpc.call({"op": "status", "ids": ids})["jobs"]
    refused = [e for r in records for e in r["history"] if e["state"] == "rejected"]
    assert refused == [], "the scheduler knows the bound"
    assert {r["cluster"] for r in records} == {"blue", "red"}
