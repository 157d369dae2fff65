import itertools

import numpy as np
import pytest

from focusmem.lab.world import words
from focusmem.lab.world.site import MIN_CONTRAST, NUM_CHOICES, NUM_SECTIONS, RULES, SPLITS, _contrast, make_site

make_again = make_site.__wrapped__
FAMILIES = {"market": 0, "encyclopedia": 1}


def sites(family, num, split="p"):
    return [make_site(0, f"{split}-{2 * number + FAMILIES[family]}") for number in range(num)]


def is_common(site):
    """For each convention of the site's family, whether it has the common form."""
    own = site.conventions
    sections = {group: own.section_of[group] == home for group, home in site.rules.common_sections.items()}
    of_family = {"offer": own.offer is None} if site.family == "market" else {"edition": own.edition is None}
    others = {"dialog": own.dialog is None, "picture": own.picture is None, "menu": own.menu == "Sort"}
    return {**sections, **of_family, **others, "query": own.query == "full"}


@pytest.mark.parametrize("site_id", ["e-0", "e-1", "p-3999", "m-12"])
def test_a_site_is_its_seed(site_id):
    assert make_again(7, site_id) == make_again(7, site_id)
    assert make_again(7, site_id) != make_again(8, site_id)


def test_even_numbers_are_markets():
    assert [make_site(0, f"e-{number}").family for number in range(4)] == ["market", "encyclopedia"] * 2


def test_splits_share_no_name():
    by_split = []
    for split in SPLITS:
        made = [make_site(0, f"{split}-{number}") for number in range(40)]
        by_split.append({site.name for site in made} | {entry.name for site in made for entry in site.entries})
    for one, other in itertools.combinations(by_split, 2):
        assert not one & other


@pytest.mark.parametrize("family", FAMILIES)
def test_half_of_the_sites_follow_each_common_form_independently(family):
    table = [is_common(site) for site in sites(family, 600)]
    held = np.array([list(row.values()) for row in table], dtype=float)
    for name, share in zip(table[0], held.mean(axis=0), strict=True):
        assert share == pytest.approx(0.5, abs=0.07), name
    correlation = np.corrcoef(held.T) - np.eye(held.shape[1])
    assert np.abs(correlation).max() < 0.15


def test_no_two_sites_have_the_same_ways():
    for one, other in itertools.combinations([make_site(0, f"e-{number}") for number in range(100)], 2):
        assert one.conventions != other.conventions, (one.site_id, other.site_id)


def test_conventions_name_what_the_pages_have():
    for site in sites("market", 60) + sites("encyclopedia", 60):
        own = site.conventions
        assert own.dialog in (None, *site.dialog_buttons)
        assert own.edition in (None, *site.edition_links)
        assert own.picture in (None, *site.rules.picture_labels)
        assert {own.offer, *own.section_of.values()} <= {None, *site.sections}
        assert len(set(site.sections)) == NUM_SECTIONS
        assert len(set(site.dialog_buttons)) == len(set(site.edition_links)) == NUM_CHOICES


def test_every_fact_has_one_place():
    for site in sites("market", 20) + sites("encyclopedia", 20):
        for facts in site.rules.groups.values():
            for fact in facts:
                assert [name for name in site.sections if fact in site.facts_in(name)] == [
                    name for name in (site.place_of(fact),) if name is not None
                ]


def test_entries_are_told_apart_by_name_and_price():
    made = sites("market", 5) + sites("encyclopedia", 5)
    assert len({entry.name for site in made for entry in site.entries}) >= 200
    for site in made:
        assert len({entry.name for entry in site.entries}) == len(site.entries) == 40
        assert [entry.index for entry in site.entries] == list(range(40))
        for entry in site.entries:
            assert set(entry.facts) == {
                *(fact for facts in RULES[site.family].groups.values() for fact in facts),
                *RULES[site.family].picture_facts,
            }
    for site in sites("market", 5):
        for category in site.categories():
            prices = [entry.facts["price"] for entry in site.in_category(category)]
            assert len(set(prices)) == len(prices)


def test_vocabulary():
    for name, least in {"ADJECTIVES": 200, "MATERIALS": 40, "COUNTRIES": 50, "LANGUAGES": 25}.items():
        assert len(set(getattr(words, name))) == len(getattr(words, name)) >= least, name
    assert len(words.CATEGORIES) >= 20
    assert len(words.COLOURS) >= 10
    endings = [word for group in (words.CATEGORIES, words.PLACES) for text in group.values() for word in text.split()]
    assert len(set(endings)) == len(endings)


@pytest.mark.parametrize("family", FAMILIES)
def test_colours_can_be_read(family):
    for look in (site.look for site in sites(family, 100)):
        assert _contrast(look.accent, look.paper) >= MIN_CONTRAST
        assert _contrast(look.bar, (255, 255, 255)) >= MIN_CONTRAST
        assert _contrast(look.ink, look.card) >= MIN_CONTRAST
