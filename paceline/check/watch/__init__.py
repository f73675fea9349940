"""What listens inside a rank while a student's script trains. Only torch and the standard library.

Every observation is a line of the rank's JSONL with the event "observed": docs/check.md lists them.
"""

EVENT = "observed"
