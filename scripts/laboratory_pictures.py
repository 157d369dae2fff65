"""Draws the sheets in docs/pictures again: run it with the project's Python after pages or sites have changed."""

import asyncio
from pathlib import Path

from PIL import Image, ImageDraw

from focusmem.browser.chromium import ChromiumBrowser
from focusmem.lab.world.scene import VIEW_HEIGHT, VIEW_WIDTH, Font, loaded_font
from focusmem.lab.world.server import LAB_LIMITS, LabServer
from focusmem.lab.world.session import PageSession
from focusmem.lab.world.site import Site
from focusmem.lab.world.tasks import make_task
from focusmem.lab.world.world import World

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
GAP, CAPTION = 18, 24


def sheet(images: list[tuple[Image.Image, str]], columns: int) -> Image.Image:
    rows = -(-len(images) // columns)
    size = (GAP + columns * (VIEW_WIDTH + GAP), GAP + rows * (VIEW_HEIGHT + CAPTION + GAP))
    whole = Image.new("RGB", size, "white")
    canvas = ImageDraw.Draw(whole)
    for index, (image, caption) in enumerate(images):
        left = GAP + index % columns * (VIEW_WIDTH + GAP)
        top = GAP + index // columns * (VIEW_HEIGHT + CAPTION + GAP)
        whole.paste(image, (left, top))
        canvas.rectangle((left - 1, top - 1, left + VIEW_WIDTH, top + VIEW_HEIGHT), outline=(190, 196, 206))
        canvas.text((left, top + VIEW_HEIGHT + 4), caption, fill=(70, 74, 84), font=loaded_font(Font(14)))
    return whole


def site_with(world: World, first: int, convention: str, *, is_common: bool = False) -> Site:
    """The first site from a number on that follows the common form of a convention, or does not."""
    numbered = (world.site(f"e-{number}") for number in range(first, first + 400, 2))
    return next(site for site in numbered if (getattr(site.conventions, convention) is None) == is_common)


def market(world: World) -> list[tuple[str, str]]:
    home, results, section, listing = (world.site(f"e-{number}") for number in (32, 36, 26, 20))
    dialog, product = site_with(world, 2, "dialog"), site_with(world, 30, "picture", is_common=True)
    part = section.conventions.section_of["measure"]
    category = listing.categories()[0]
    query = results.query_for(results.entries[5]).replace(" ", "+")
    return [
        (f"/{home.site_id}/?seen=1", "A home page"),
        (f"/{dialog.site_id}/", "A dialog in front of another site"),
        (f"/{results.site_id}/find?q={query}&seen=1", "What a search finds"),
        (f"/{product.site_id}/entry/9?seen=1", "A product with its picture"),
        (f"/{section.site_id}/entry/3/part/{part}?seen=1", "A section with facts"),
        (f"/{listing.site_id}/kind/{category}?order=low&seen=1", "A list, ordered by price"),
    ]


def encyclopedia(world: World) -> list[tuple[str, str]]:
    home, results, article, section = (world.site(f"e-{number}") for number in (9, 5, 7, 13))
    dialog, short = site_with(world, 1, "dialog"), site_with(world, 15, "edition")
    part = section.conventions.section_of["past"]
    query = results.query_for(results.entries[5]).replace(" ", "+")
    return [
        (f"/{home.site_id}/?seen=1", "A home page"),
        (f"/{dialog.site_id}/", "A dialog in front of another site"),
        (f"/{results.site_id}/find?q={query}&seen=1", "What a search finds"),
        (f"/{article.site_id}/entry/4?seen=1", "An article"),
        (f"/{section.site_id}/entry/3/part/{part}?seen=1", "A section with facts"),
        (f"/{short.site_id}/entry/6?seen=1", "A short edition"),
    ]


def office(world: World) -> list[tuple[str, str]]:
    site, task = world.office("eo-3"), make_task(world, "eo-3", "errand", "evaluation", 1)
    visit, inside = f"ticket={task.request.ticket}", f"pass={site.staff_pass}"
    notice = make_task(world, "eo-3", "relay", "evaluation", 0)
    first = task.request.values[0]
    return [
        (f"/eo-3/?{visit}", "The entrance, for a visitor"),
        (f"/eo-3/list/{site.lists[0]}?{inside}", "A list, for the staff"),
        (f"/eo-3b/list/{site.lists[0]}?pass={world.office('eo-3b').staff_pass}", "The same list at another branch"),
        (notice.start_path, "A notice at the beginning of a visit"),
        (f"/eo-3/request?{visit}", "A part of a request"),
        (f"/eo-3/request?{visit}&v1={first}", "The next part"),
    ]


async def both_views(world: World, paths: list[str]) -> list[tuple[Image.Image, str]]:
    images = []
    with LabServer(world) as server:
        browser = await ChromiumBrowser.launch(LAB_LIMITS, [server.host])
        for path in paths:
            await browser.open(server.url.rstrip("/") + path)
            images.append((PageSession(world, path).image(), "Raster (Pillow)"))
            images.append(((await browser.observe()).screenshot.image(), "Chromium"))
        await browser.close()
    return images


def main() -> None:
    world = World(0)
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, pages in (
        ("market", market(world)),
        ("encyclopedia", encyclopedia(world)),
        ("office", office(world)),
    ):
        drawn = [(PageSession(world, path).image(), caption) for path, caption in pages]
        sheet(drawn, 3).quantize(128).save(PICTURES / f"{name}.png", optimize=True)
    paths = [market(world)[3][0], encyclopedia(world)[2][0]]
    two = asyncio.run(both_views(world, paths))
    sheet(two, 2).quantize(128).save(PICTURES / "two-views.png", optimize=True)


if __name__ == "__main__":
    main()
