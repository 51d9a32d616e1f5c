"""Word lists of the generated world: values that can be listed, and the words of titles.

The order of a list is the order of likelihood: the first value of a skewed relation is its mode.
No word here starts with a vowel where a phrasing puts "a" before it, and no word is used twice.
"""

from __future__ import annotations


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


COUNTRIES = _words(
    "Velmark Tarland Kosvia Dornia Zelmark Gorland Belvia Falnia Garmark Lunland Pelvia Ronnia "
    "Tolmark Visland Kalvia Bornia Jormark Hesland Denvia Lamnia Rudmark Sorland Wenvia Yarnia"
)
LANGUAGES = _words(
    "Arlish Bontish Cordish Dunnish Ebrish Fortish Galtish Hurnish Ildish Jentish Kolbish Lomtish "
    "Mardish Nolfish Orvish Pentish Quarnish Relsish Sundish Tormish Ultish Varlish Wolnish Zandish"
)
CURRENCIES = _words(
    "brint crell dorm flick glint hern jolt krem lorne mint nolt pell quill renk stell tront urk "
    "vell wrim yelk zorn brock clem drell"
)
TRADES = _words(
    "baker carpenter dancer farmer gardener lawyer miner nurse painter sailor tailor weaver"
)
INSTRUMENTS = _words("banjo bugle cello drum fiddle flute guitar harp lute piano viola zither")
PRODUCTS = _words("boats bricks carpets clocks lamps paper ropes shoes tools wagons")
SCRIPTS = _words("round square slanted knotted dotted curved angled looped")
SEAS = tuple(f"{word} Sea" for word in _words("Inner Outer Upper Lower North South East West"))
YEARS = tuple(str(year) for year in range(1900, 2000))

ADJECTIVES = _words(
    "Amber Ancient Autumn Bitter Blazing Blind Bold Brave Bright Broken Bronze Burning Calm "
    "Careful Clever Cloudy Cold Copper Cosmic Crimson Cruel Crystal Curious Daring Dark Deep "
    "Distant Double Dusty Eager Early Electric Empty Endless Eternal Faded Faithful Fallen False "
    "Famous Fierce Final Floating Foolish Forgotten Fragile Frozen Gentle Giant Gilded Golden "
    "Grand Green Happy Heavy Hidden Hollow Humble Hungry Icy Iron Ivory Jolly Kind Lonely Loud "
    "Lucky Magic Marble Mighty Misty Noble Pale Patient Perfect Plain Proud Purple Quiet Rapid "
    "Rare Restless Rising Royal Rusty Sacred Scarlet Secret Silent Silver Sleepy Smooth Stolen "
    "Strange Sudden Tender Twisted Velvet Violet Wandering Wicked Wild Winter"
)
NOUNS = _words(
    "Anchor Angel Arrow Ash Barrel Basket Beacon Bell Bird Blade Blossom Bottle Branch Bridge "
    "Candle Canyon Castle Cavern Chain Circle Cliff Comet Corner Cradle Creek Crown Curtain "
    "Desert Diamond Dragon Dream Eagle Echo Ember Falcon Feather Fence Field Flame Forest "
    "Fountain Fox Garden Gate Ghost Glacier Hammer Harbor Hawk Hill Horizon Hunter Island Jewel "
    "Journey Key Kingdom Knight Ladder Lantern Lion Maze Meadow Mirror Monkey Moon Mountain "
    "Needle Ocean Orchard Owl Palace Pearl Pilgrim Planet Prince Rain Raven Ribbon Rose Shadow "
    "Shell Shield Ship Snow Spider Star Stone Storm Stranger Temple Thunder Tiger Tower Treasure "
    "Valley Wave Whisper Window Wolf"
)
