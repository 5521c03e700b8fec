"""Torture: many clients and random faults on one queue, and a checker of what the clients recorded.

    make torture BACKEND=postgres SECONDS=600 SEED=7

Publishers and workers, blocking and asyncio, each in its own process, write down every call before they make it, and
its result afterwards (`history`). Meanwhile clients are killed, or stopped for longer than their leases, sessions are
ended, and the server is killed and started again. A proxy cuts, delays and half-closes connections, and goes silent
(`faults`). At the end the queue is drained, and `checker` looks for violations: a lost or doubled message, a message
out of order, two leases on one group, a stale ack that counted, attempts that do not grow. It also looks for a claim
that found nothing although something was there, an error that is not Fairlane's, and a call that took longer than its
timeout.
"""
