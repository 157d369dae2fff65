"""Draws docs/pictures/trace-page.png again: the page of a demonstration, in a real browser, opened at one step.

focusmem demo --seed 6 --out runs/demo
python scripts/trace_picture.py runs/demo/page.html --task 1 --step 2
"""

import argparse
import asyncio
from pathlib import Path

from PIL import Image

from focusmem.browser.chromium_process import ChromiumPool

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "trace-page.png"
WIDTH, HEIGHT = 1440, 1400


async def draw(page: Path, picture: Path, address: str, scheme: str) -> None:
    async with ChromiumPool() as pool:
        process = await pool.process(())
        context = await process.new_context(WIDTH, HEIGHT)
        opened = await context.new_page()
        await opened.emulate_media(color_scheme=scheme)
        await opened.goto(f"{page.resolve().as_uri()}#{address}")
        await opened.wait_for_timeout(1000)
        await opened.screenshot(path=picture)
        await context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path, help="what a demonstration or `focusmem report` wrote")
    parser.add_argument("--task", type=int, default=1, help="which of its tasks, from 1")
    parser.add_argument("--step", type=int, default=1, help="which step, from 1")
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--out", type=Path, default=PICTURE)
    given = parser.parse_args()
    address = f"task={given.task}&step={given.step}"
    asyncio.run(draw(given.page, given.out, address, "dark" if given.dark else "light"))
    # A palette is enough for a page of plain colours; the rare red of the clicks must not get lost in it.
    picture = Image.open(given.out).convert("RGB")
    picture.quantize(256, method=Image.Quantize.MAXCOVERAGE, kmeans=4).save(given.out, optimize=True)


if __name__ == "__main__":
    main()
