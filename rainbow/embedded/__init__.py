"""A whole rainbow from the pip install alone: one bundled server is broker and store, no port is opened."""
