"""The probe: what watches one rank while its script trains. Only torch and the standard library.

Importing the package itself costs nothing, and no torch: a script's own first lines come before that.
"""
