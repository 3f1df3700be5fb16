"""The messages of rainbow v1's gRPC services, described by hand: names, numbers and types of their fields.

Descriptors live in a pool of their own, so that programs which load v1's client can load this as well. The time stamps
`sent` are left out: a reader skips fields that it does not know.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SCHEDULER = "convergedcomputing.org.grpc.v1"
MEMORY = "service"

_Field = descriptor_pb2.FieldDescriptorProto
_TYPES = {"text": _Field.TYPE_STRING, "int": _Field.TYPE_INT32, "enum": _Field.TYPE_INT32, "bool": _Field.TYPE_BOOL}

# NAME: fields as NAME:NUMBER:TYPE. On the wire an enum is a number: the names of the results are below.
_MESSAGES = {
    SCHEDULER: {
        "RegisterRequest": "name:1:text secret:2:text nodes:3:text subsystem:4:text",
        "RegisterResponse": "request_id:1:text token:2:text secret:3:text status:4:enum",
        "UpdateStateRequest": "cluster:1:text secret:2:text payload:3:text",
        "UpdateStateResponse": "status:1:enum",
        "SubmitJobRequest": "name:1:text clusters:2:Cluster* jobspec:3:text select_algorithm:4:text "
        "select_options:5:text-text satisfy_only:6:bool",
        "Cluster": "name:1:text token:2:text",
        "SubmitJobResponse": "request_id:1:text jobid:2:int cluster:3:text status:4:enum clusters:5:text*",
        "ReceiveJobsRequest": "cluster:1:text secret:2:text maxJobs:3:int",
        "ReceiveJobsResponse": "request_id:1:text jobs:2:int-text status:3:enum",
        "AcceptJobsRequest": "cluster:1:text secret:2:text jobids:3:int*",
        "AcceptJobsResponse": "status:1:enum",
    },
    MEMORY: {
        "SatisfyRequest": "payload:1:text matcher:2:text",
        "SatisfyResponse": "clusters:1:text* status:2:enum total_clusters:3:int total_matches:4:int "
        "total_mismatches:5:int",
    },
}

REGISTER_SUCCESS, REGISTER_ERROR, REGISTER_DENIED, REGISTER_EXISTS = 1, 2, 3, 4
SUBMIT_SUCCESS, SUBMIT_ERROR, SUBMIT_DENIED = 1, 2, 3
STATE_SUCCESS, STATE_ERROR = 2, 3
JOBS_NONE, JOBS_SUCCESS, JOBS_ERROR, JOBS_DENIED = 0, 1, 2, 3
ACCEPT_PARTIAL, ACCEPT_SUCCESS, ACCEPT_ERROR = 1, 2, 3
SATISFY_SUCCESS, SATISFY_ERROR = 1, 2


def _described(package: str, messages: dict[str, str]) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for text in fields.split():
            label, number, kind = text.split(":")
            field = message.field.add(name=label, number=int(number), label=_Field.LABEL_OPTIONAL)
            if "-" in kind:
                _map(message, field, f".{package}.{name}", *kind.split("-"))
                continue
            if kind.endswith("*"):
                field.label = _Field.LABEL_REPEATED
            kind = kind.removesuffix("*")
            if kind in _TYPES:
                field.type = _TYPES[kind]
            else:
                field.type, field.type_name = _Field.TYPE_MESSAGE, f".{package}.{kind}"
    return file


def _map(message: Any, field: Any, path: str, key: str, value: str) -> None:
    """A map is a repeated message of a key and a value."""
    entry = message.nested_type.add(name="".join(p.title() for p in field.name.split("_")) + "Entry")
    entry.options.map_entry = True
    for number, (label, kind) in enumerate((("key", key), ("value", value)), start=1):
        entry.field.add(name=label, number=number, type=_TYPES[kind], label=_Field.LABEL_OPTIONAL)
    field.label, field.type, field.type_name = _Field.LABEL_REPEATED, _Field.TYPE_MESSAGE, f"{path}.{entry.name}"


_POOL = descriptor_pool.DescriptorPool()
for _package, _messages in _MESSAGES.items():
    _POOL.Add(_described(_package, _messages))


def message(package: str, name: str) -> Any:
    """The class of a message."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{package}.{name}"))


#: Of each service its methods, with their request and response.
METHODS = {
    f"{SCHEDULER}.RainbowScheduler": {
        "Register": ("RegisterRequest", "RegisterResponse"),
        "RegisterSubsystem": ("RegisterRequest", "RegisterResponse"),
        "UpdateState": ("UpdateStateRequest", "UpdateStateResponse"),
        "SubmitJob": ("SubmitJobRequest", "SubmitJobResponse"),
        "ReceiveJobs": ("ReceiveJobsRequest", "ReceiveJobsResponse"),
        "AcceptJobs": ("AcceptJobsRequest", "AcceptJobsResponse"),
    },
    f"{MEMORY}.MemoryGraph": {"Satisfy": ("SatisfyRequest", "SatisfyResponse")},
}
