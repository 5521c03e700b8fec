"""A rollout: the previous release beside this version, on one queue, while the queue is upgraded and downgraded.

The previous release comes from the history of the repository, and runs in processes of its own.

    FAIRLANE_ROLLOUT_SECONDS=60 make test PYTEST_ARGS="tests/rollout"     each part of a rollout lasts for a minute
"""
