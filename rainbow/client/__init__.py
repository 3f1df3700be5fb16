"""The Python client: ``Client().submit(command=["hostname"], nodes=2).wait()``."""

from rainbow.client.client import Client
from rainbow.client.follower import Follower
from rainbow.client.job import Job
from rainbow.client.submission import JobFields
from rainbow.client.views import Cancelled, ClusterView, EnrollmentView, Registration

__all__ = ["Cancelled", "Client", "ClusterView", "EnrollmentView", "Follower", "Job", "JobFields", "Registration"]
