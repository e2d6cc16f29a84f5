"""How good are the confidences: calibration, selective answering, proper scores; all from tallies."""
