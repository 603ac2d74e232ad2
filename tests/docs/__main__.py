"""Writes what architecture.md shows of the code, its picture and its table, and errors and places of predictions."""

from tests.docs import drawing, packages
from tests.product import ROOT
from tests.simulation.predict import accuracy, ranked

if __name__ == "__main__":
    drawing.PICTURE.write_text(drawing.svg(drawing.read()), encoding="utf-8")
    packages.TABLE.write_text(packages.table(packages.measured()), encoding="utf-8")
    packages.ROOMS.write_text(packages.rooms_table(packages.ROOMS.read_text(encoding="utf-8")), encoding="utf-8")
    accuracy.TABLE.write_text(accuracy.text(), encoding="utf-8")
    ranked.TABLE.write_text(ranked.text(), encoding="utf-8")
    written = (drawing.PICTURE, packages.TABLE, packages.ROOMS, accuracy.TABLE, ranked.TABLE)
    print(f"written: {', '.join(str(each.relative_to(ROOT)) for each in written)}")
