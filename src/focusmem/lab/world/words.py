"""The laboratory's vocabulary: an unlimited number of names made of syllables, and lists of everyday words."""

import random

ADJECTIVES = """
amber ample ancient arctic autumn azure balanced bold brave breezy bright brisk bronze calm candid celtic cheerful
civic classic clear clever coastal compact cosmic cosy crisp curved dapper daring deluxe desert double dreamy durable
eager early earthy easy elegant endless evening fabled faithful famous fancy feather festive fine firm floral folding
formal fresh friendly frosty gentle gilded glossy golden graceful grand handy happy harbour hardy hearty hidden honest
humble ideal indigo island ivory jolly jovial jumbo keen kind lakeside large lasting lavish leafy level light linen
little lively local lofty loyal lucky lunar magic maple marine mellow merry midnight mighty misty mobile modern modest
moonlit morning mossy mountain narrow natural neat nimble noble northern nova oaken olive open orchard painted paper
pastel patient peaceful pearl petite pine placid plain playful plush pocket polar polished portable prairie precise
prime proud quick quiet radiant rapid refined regal reliable retro ridge river robust rocky rosy round royal rugged
rural rustic satin scenic secret serene shaded sharp shiny silent silken silver simple sleek slender slim smart smooth
snowy soft solar solid southern spare spring square stable starry steady still stone stormy striped sturdy subtle
summer sunlit sunny supple sweet swift tall tender thrifty tidy timber tiny tranquil true twin urban useful valley
velvet vintage vivid warm western wide willow windy winter wise woodland woven zesty
""".split()

CATEGORIES = {
    "lamp": "lamp lantern spotlight nightlight",
    "chair": "chair stool armchair bench",
    "mug": "mug cup tumbler beaker",
    "clock": "clock timer alarm chronometer",
    "bag": "bag backpack satchel suitcase",
    "kettle": "kettle teapot jug carafe",
    "book": "notebook diary album sketchbook",
    "shoe": "shoe boot sandal slipper",
    "tent": "tent awning canopy shelter",
    "guitar": "guitar ukulele banjo violin",
    "camera": "camera webcam projector scanner",
    "plant": "plant fern cactus palm",
    "ball": "ball football basketball volleyball",
    "hat": "hat cap beret helmet",
    "bottle": "bottle flask canteen thermos",
    "drill": "drill sander screwdriver polisher",
    "pillow": "pillow cushion bolster headrest",
    "table": "table desk workbench sideboard",
    "umbrella": "umbrella parasol sunshade windbreak",
    "bike": "bicycle tricycle scooter handcart",
}
"""A picture for each category, and the words that products of it may end in."""

PLACES = {
    "mountain": "mount peak summit ridge",
    "lake": "lake pond lagoon reservoir",
    "castle": "castle fortress palace citadel",
    "city": "city port town borough",
    "island": "island isle atoll reef",
    "bridge": "bridge viaduct aqueduct causeway",
}
"""Kinds of encyclopedia entries, and the words their titles may end in."""

MATERIALS = """
oak walnut pine beech cedar bamboo rattan cork steel iron brass copper bronze pewter titanium nickel glass crystal
porcelain ceramic granite marble slate cotton linen wool silk velvet leather suede canvas nylon felt rubber acrylic
silicone carbon paper wicker jute
""".split()

COUNTRIES = """
Argentina Australia Austria Belgium Bolivia Brazil Bulgaria Cambodia Canada Chile China Colombia Croatia Cuba Cyprus
Denmark Ecuador Egypt Estonia Ethiopia Finland France Georgia Germany Ghana Greece Hungary Iceland India Indonesia
Ireland Italy Jamaica Japan Jordan Kenya Laos Latvia Lebanon Malaysia Mexico Mongolia Morocco Nepal Nigeria Norway
Panama Peru Poland Portugal Romania Senegal Serbia Spain Sweden Thailand Tunisia Turkey Uganda Vietnam
""".split()

LANGUAGES = """
Amharic Basque Breton Catalan Cornish Danish Estonian Faroese Finnish Frisian Gaelic Galician Icelandic Irish Latvian
Ligurian Maltese Manx Occitan Romansh Sami Sardinian Scots Sorbian Tamil Venetian Welsh Yiddish Yoruba Zulu
""".split()

MATTERS = tuple(
    """
archives births bridges buses complaints dogs elections events farms fees festivals films fines fishing forests gardens
grants guides harbours health heating housing hunting insurance jobs kindergartens libraries licences loans markets
museums music noise parking parks passports pensions permits pools post rents repairs roads schools sports streets taxes
theatres tolls tours trees visas votes waste water weddings wells youth
""".split()
)
"""What departments are for."""

COLOURS = {
    "red": (206, 44, 49),
    "orange": (240, 138, 36),
    "yellow": (247, 206, 70),
    "green": (60, 150, 74),
    "teal": (38, 154, 154),
    "blue": (49, 99, 196),
    "purple": (124, 77, 178),
    "pink": (240, 130, 170),
    "brown": (128, 84, 52),
    "black": (44, 44, 50),
    "grey": (150, 152, 158),
}

_ONSETS = "b br c cl d dr f fl g gr h j k kl l m n p pl pr qu r s sk st t tr v w z th sh".split()
_VOWELS = "a e i o u ae ei io ou ia".split()
_CODAS = ["", "", "", "l", "n", "r", "s", "m", "x", "nd", "rn", "st"]


def invented_name(rng: random.Random, num_syllables: int = 2) -> str:
    """A pronounceable word that is in no dictionary, capitalised."""
    parts = [rng.choice(_ONSETS) + rng.choice(_VOWELS) for _ in range(num_syllables)]
    return ("".join(parts) + rng.choice(_CODAS)).capitalize()


def filler_sentence(rng: random.Random, subject: str) -> str:
    """A sentence without any information that a task asks for."""
    return rng.choice(_FILLERS).format(
        subject=subject, one=rng.choice(ADJECTIVES), two=rng.choice(ADJECTIVES), maker=invented_name(rng)
    )


_FILLERS = (
    "Many visitors call the {subject} {one} and {two}.",
    "The {subject} looks {one} by day and {two} at night.",
    "A {one} choice for people who like things {two}.",
    "Since last spring the {subject} has been talked about in {maker}.",
    "Our friends from {maker} praise its {one} side.",
    "Some find it {one}, others simply {two}.",
    "It goes well with a {one} mood and a {two} room.",
    "Letters from {maker} mention the {one} {subject} often.",
    "Nobody forgets a {subject} as {one} as this one.",
    "What began as a {one} idea became a {two} habit.",
    "The {one} style was first seen in {maker}.",
    "Ask for the {two} leaflet, it is free.",
)
