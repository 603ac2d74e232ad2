"""Writes what docs/explanation/architecture.md shows of the code: its picture and its table."""

from __future__ import annotations

from tests.docs import drawing, packages

if __name__ == "__main__":
    drawing.PICTURE.write_text(drawing.svg(drawing.read()), encoding="utf-8")
    packages.TABLE.write_text(packages.table(packages.measured()), encoding="utf-8")
    print(f"written: {drawing.PICTURE.relative_to(packages.ROOT)}, {packages.TABLE.relative_to(packages.ROOT)}")
