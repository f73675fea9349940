"""`paceline lab check`: runs a student's script under the probe and verifies what it does, not its spelling.

watch/ listens inside the ranks and writes observations; observations.py reads them back; verdicts/ judges
them, in pure functions; world.py runs a script so that it can harm no other; check.py puts them together.
"""
