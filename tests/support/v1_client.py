"""What the scripts of rainbow v1 do with its own client, in a process that has v1's package in place of ours.

python v1_client.py OPERATION HOST CONFIG ARGUMENT...   prints one JSON document
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from typing import Any


def main(operation: str, host: str, config_path: str, *arguments: str) -> Any:
    """One operation; its result as plain data."""
    # All of it v1's: by name, since our own package has the same.
    config = import_module("rainbow.config")
    client_of = import_module("rainbow.client").RainbowClient
    core = import_module("jobspec.core")
    spec_of, converter = core.Jobspec, core.converter

    if operation == "register":
        name, secret, nodes = arguments
        if not os.path.exists(config_path):
            # Version 0.0.16 reads its settings file before anything else, so there must be one.
            config.new_rainbow_config(host, name, secret).save_yaml(config_path)
        cfg = config.RainbowConfig(config_path)
        answer = client_of(config_file=config_path).register(name, secret=secret, cluster_nodes=nodes)
        if answer.status == 1:
            cfg._cfg["cluster"]["secret"] = answer.secret
            cfg.add_cluster(name, answer.token)
            cfg.save_yaml(config_path)
        return {"status": answer.status, "token": answer.token, "secret": answer.secret}
    client: Any = client_of(host=host, config_file=config_path)
    secret = client.cfg._cfg["cluster"].get("secret", "")
    if operation == "subsystem":
        return {"status": client.register_subsystem(arguments[0], arguments[1], secret, arguments[2]).status}
    if operation == "state":
        return {"status": client.update_state(arguments[0], arguments[1], secret).status}
    if operation == "receive":
        return client.receive_jobs(int(arguments[0]))
    if operation == "submit-job":
        spec = spec_of(converter.new_simple_jobspec(nodes=int(arguments[0]), command=list(arguments[1:])))
    else:
        spec = spec_of(arguments[0])
    answer = client.submit_jobspec(spec, satisfy_only=operation == "satisfy")
    shown = {name: getattr(answer, name) for name in ("status", "total_matches", "total_mismatches", "total_clusters")}
    return {**shown, "clusters": list(answer.clusters), "cluster": getattr(answer, "cluster", None)}


if __name__ == "__main__":
    print("\n" + json.dumps(main(*sys.argv[1:])))
