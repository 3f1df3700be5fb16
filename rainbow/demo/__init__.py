"""The main job, start to end: three clusters with real resource graphs, and jobs that go where they can run."""
