"""Triage: which named faults, if any, does an implementation have?

Probes are run on the backend (`probes`), readings compare it with the reference (`readings`), predictions
say what the reference would compute with some faults (`predictions`), the search looks for the smallest set
of faults that leaves nothing but rounding (`search`), and a diagnosis says so in words (`diagnosis`).
"""
