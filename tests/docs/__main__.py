"""Writes what is made of the code: the picture and the table of docs/explanation/architecture.md."""

from __future__ import annotations

from tests.docs import drawing, packages

if __name__ == "__main__":
    drawing.PICTURE.write_text(drawing.svg(drawing.read()), encoding="utf-8")
    packages.PAGE.write_text(packages.rewritten(packages.PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"written: {drawing.PICTURE.relative_to(packages.ROOT)}, {packages.PAGE.relative_to(packages.ROOT)}")
