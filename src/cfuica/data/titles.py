"""Titles of things that never were: the catalogue of the synthetic world."""

from __future__ import annotations

from cfuica.data.keyed import permutation

_ADJECTIVES = (
    "Glass", "Silent", "Crimson", "Hollow", "Last", "Golden", "Broken", "Northern", "Paper",
    "Velvet", "Winter", "Hidden", "Copper", "Distant", "Burning", "Forgotten", "Blue", "Iron",
    "Restless", "Second", "Salt", "Wandering", "Pale", "Honest", "Midnight", "Borrowed", "Quiet",
    "Scarlet", "Patient", "Drifting",
)  # fmt: skip

# What a title is about tells the genre, so that a list of recommendations reads like a taste.
_NOUNS = {
    "Adventure": ("Harbour", "Compass", "Expedition", "Island", "Caravan", "Lagoon", "Summit"),
    "Animation": ("Fox", "Lantern", "Puppet", "Balloon", "Teapot", "Dragonfly", "Snowman"),
    "Comedy": ("Wedding", "Landlord", "Nephew", "Holiday", "Butler", "Pancake", "Reunion"),
    "Crime": ("Alibi", "Detective", "Ransom", "Verdict", "Heist", "Informer", "Witness"),
    "Documentary": ("Orchard", "Glacier", "Archive", "Railway", "Reef", "Vineyard", "Meadow"),
    "Drama": ("Letter", "Daughter", "Promise", "Piano", "Farewell", "Inheritance", "Staircase"),
    "Fantasy": ("Crown", "Sorcerer", "Tower", "Griffin", "Prophecy", "Mirror", "Realm"),
    "Horror": ("Cellar", "Whisper", "Asylum", "Coffin", "Scarecrow", "Shadow", "Ritual"),
    "Romance": ("Kiss", "Serenade", "Rose", "Valentine", "Waltz", "Heart", "Summer"),
    "Science Fiction": ("Orbit", "Signal", "Android", "Nebula", "Colony", "Paradox", "Satellite"),
}
_PATTERNS = ("The {adjective} {noun}", "Beyond the {adjective} {noun}")

GENRES = tuple(_NOUNS)


def numeral(part: int) -> str:
    """A part's number as a title carries it: nothing for the first, then II, III, IV, ..."""
    if part == 1:
        return ""
    roman, rest = "", part
    for value, sign in ((10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")):
        roman += sign * (rest // value)
        rest %= value
    return f" {roman}"


def make_titles(genres: list[str], *key: int) -> list[str]:
    """One distinct title for each of the given main genres."""
    decks = {
        genre: [
            pattern.format(adjective=adjective, noun=noun)
            for pattern in _PATTERNS
            for adjective in _ADJECTIVES
            for noun in _NOUNS[genre]
        ]
        for genre in GENRES
    }
    orders = {
        genre: permutation(len(deck), *key, number)
        for number, (genre, deck) in enumerate(decks.items())
    }
    drawn = dict.fromkeys(GENRES, 0)
    titles = []
    for genre in genres:
        turn, at = divmod(drawn[genre], len(decks[genre]))
        title = decks[genre][orders[genre][at]]
        # Once the deck is through, remakes carry the year, as they do elsewhere.
        titles.append(title if turn == 0 else f"{title} ({2000 + turn})")
        drawn[genre] += 1
    return titles
