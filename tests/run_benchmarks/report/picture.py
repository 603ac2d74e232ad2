"""Draws docs/images/report.png, the first screen of a report; `python -m tests.run_benchmarks.report.picture`."""

import base64
import tempfile
from pathlib import Path

from run_benchmarks.report.html import write_page
from run_benchmarks.results.loading import load_run
from tests.browser import Browser, browser
from tests.docs.pages import ROOT
from tests.run_benchmarks.report.sample import write_sample

PICTURE = ROOT / "docs" / "images" / "report.png"
WIDTH, HEIGHT = 1400, 1180
# Share of a cell of 20 x 20 pixels that is not background: of one that shows something, of one that shows nothing.
INKED, EMPTY = 0.02, 0.001
INK = """(async () => {
  const image = new Image();
  image.src = 'data:image/png;base64,%s';
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height), drawn = canvas.getContext('2d');
  drawn.drawImage(image, 0, 0);
  const cells = [], background = [255, 255, 255];
  for (let y = 0; y + 20 <= image.height; y += 20) for (let x = 0; x + 20 <= image.width; x += 20) {
    const pixels = drawn.getImageData(x, y, 20, 20).data;
    let ink = 0;
    for (let at = 0; at < pixels.length; at += 4) ink += background.some((c, i) => Math.abs(pixels[at + i] - c) > 24);
    cells.push(ink / 400);
  }
  return cells;
})()"""


def page_of(folder: Path) -> Path:
    """The page of a sample run of 64 hosts, in `folder`."""
    page = folder / "page.html"
    write_page([load_run(write_sample(folder, seconds=300))], page)
    return page


def screen(opened: Browser, page: Path) -> bytes:
    """The first screen with its charts, in the light scheme, as PNG."""
    opened.open(page, width=WIDTH, height=HEIGHT)
    opened.wait("document.querySelectorAll('.plot svg').length >= 2")
    return opened.screenshot()


def lost_share(opened: Browser, known: bytes, now: bytes) -> float:
    """The share of the cells with something on them in `known` that are empty in `now`."""
    before, after = (_ink(opened, picture) for picture in (known, now))
    inked = [index for index, ink in enumerate(before) if ink > INKED]
    return sum(index >= len(after) or after[index] < EMPTY for index in inked) / len(inked)


def _ink(opened: Browser, picture: bytes) -> list[float]:
    """The share of pixels that are not background, by cell; on an empty page, since a report lets no picture in."""
    opened.call("Page.navigate", url="about:blank")
    cells: list[float] = opened.value(INK % base64.b64encode(picture).decode())
    return cells


def main() -> None:
    """Write the picture."""
    with tempfile.TemporaryDirectory() as folder, browser() as opened:
        PICTURE.write_bytes(screen(opened, page_of(Path(folder))))
    print(f"written: {PICTURE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
