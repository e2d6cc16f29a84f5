"""The figures of the report, one file each.

In: measured numbers of `report/content.py`. Out: drawings for the page. Open `reliability.py` first.
"""
