"""The study behind the two constants of the grading: ratios of engines that conform, and of faults.

    python -m conformance.calibration                          measure, then write docs/tolerances.md
    python -m conformance.calibration --from docs/tolerances   write it again from the stored numbers

Engines run in their workers, the reference in processes of its own; whatever reads stored numbers needs
neither.
"""
