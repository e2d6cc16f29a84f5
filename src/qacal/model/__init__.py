"""The whole pipeline: records to fitted model, new records to calibrated ones.

In: records and settings. Out: a :class:`~qacal.model.model.QACalibrator` that calibrates, explains and saves itself.
Open `pipeline.py` first (the path of a row), then `fitting.py` (the three passes of a fit) and `model.py`.
"""
