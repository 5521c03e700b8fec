"""Torture: many clients and random faults on one queue, and a checker of what they have seen.

    make torture BACKEND=postgres SECONDS=600 SEED=7

Publishers and workers, blocking and asyncio, each a process, write down every call before they make it and what came
of it (`history`). Meanwhile clients are killed or stopped past their leases, sessions are ended, the server is killed
and started again, a proxy cuts, delays, half-closes and goes silent (`faults`). In the end the queue is drained, and
`checker` looks for what must never be: a lost or doubled message, one out of order, two leases on one group, a stale
ack that counted, attempts that do not grow, a claim that found nothing although something was there, an error that is
not Fairlane's, a call that took longer than its timeout.
"""
