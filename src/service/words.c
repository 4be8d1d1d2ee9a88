/* SPDX-License-Identifier: MIT */
/*
 * Words that ids are made of when enable_words_oid is on: short, easy to say and to
 * spell, none rude by itself. Constant data; any thread. 512 of them, so that a word
 * is nine bits; a change keeps the number.
 */
#include "service/state.h"

/* clang-format off */
const char mr__words[MR_WORD_COUNT][MR_WORD_BYTES_MAX + 1] = {
    "Acorn", "Agate", "Alder", "Almond", "Amber", "Anchor", "Anvil", "Apple", "Apricot", "Arbor",
    "Arrow", "Aspen", "Aster", "Atlas", "Aurora", "Autumn", "Avocado", "Badger", "Bagel", "Bamboo",
    "Banjo", "Barley", "Basalt", "Basil", "Basin", "Basket", "Bay", "Beacon", "Bean", "Bear",
    "Beaver", "Beech", "Beetle", "Bell", "Berry", "Birch", "Biscuit", "Bison", "Blaze", "Blossom",
    "Bluff", "Boat", "Bobcat", "Bolt", "Bonfire", "Bonsai", "Book", "Boulder", "Bramble", "Brass",
    "Bread", "Breeze", "Brick", "Bridge", "Brook", "Broom", "Bronze", "Bubble", "Bucket", "Buckle",
    "Bugle", "Bundle", "Butter", "Button", "Cabin", "Cactus", "Camel", "Canary", "Candle", "Canoe",
    "Canyon", "Caramel", "Caravan", "Carbon", "Cargo", "Carrot", "Cascade", "Cashew", "Castle",
    "Cedar", "Cello", "Chalk", "Charcoal", "Cherry", "Chestnut", "Chime", "Cider", "Cinder",
    "Cinnamon", "Citrus", "Clay", "Cliff", "Clover", "Cloud", "Coal", "Cobalt", "Cobra", "Cocoa",
    "Coconut", "Comet", "Compass", "Copper", "Coral", "Cork", "Corn", "Cosmos", "Cotton", "Cougar",
    "Coyote", "Crab", "Cradle", "Crane", "Crater", "Creek", "Cricket", "Crimson", "Crocus", "Crow",
    "Crystal", "Cumin", "Current", "Curlew", "Cypress", "Dahlia", "Daisy", "Dawn", "Deer", "Delta",
    "Desert", "Diamond", "Dingo", "Dolphin", "Domino", "Dove", "Dragon", "Drift", "Drum", "Dune",
    "Dusk", "Eagle", "Ebony", "Echo", "Eclipse", "Elk", "Elm", "Ember", "Emerald", "Engine",
    "Falcon", "Feather", "Fennel", "Fern", "Ferret", "Ferry", "Fiddle", "Field", "Finch", "Fjord",
    "Flame", "Flax", "Flint", "Flute", "Foam", "Fog", "Forest", "Forge", "Fossil", "Fox", "Frost",
    "Fudge", "Galaxy", "Garden", "Garlic", "Garnet", "Gazelle", "Gecko", "Geyser", "Ginger",
    "Glacier", "Glade", "Glass", "Globe", "Goat", "Goose", "Gorge", "Granite", "Grape", "Grass",
    "Gravel", "Grove", "Guava", "Guitar", "Gull", "Hammer", "Hammock", "Harbor", "Harp", "Harvest",
    "Hawk", "Hazel", "Heath", "Hedge", "Helmet", "Herb", "Heron", "Hickory", "Hill", "Holly",
    "Honey", "Hornet", "Horse", "Husky", "Ibex", "Igloo", "Indigo", "Iris", "Iron", "Island",
    "Ivory", "Ivy", "Jackal", "Jade", "Jaguar", "Jasmine", "Jasper", "Jelly", "Jetty", "Jewel",
    "Juniper", "Jungle", "Kayak", "Kelp", "Kernel", "Kestrel", "Kettle", "Kiln", "Kite", "Kiwi",
    "Knoll", "Koala", "Lace", "Ladder", "Lagoon", "Lake", "Lantern", "Larch", "Lark", "Laurel",
    "Lava", "Lavender", "Leaf", "Lemon", "Lemur", "Lentil", "Leopard", "Lichen", "Lilac", "Lily",
    "Lime", "Linden", "Linen", "Lion", "Lizard", "Llama", "Lobster", "Locket", "Loom", "Lotus",
    "Lunar", "Lynx", "Lyre", "Magnet", "Magpie", "Mallet", "Mango", "Mantis", "Maple", "Marble",
    "Marigold", "Marlin", "Marmot", "Marsh", "Marten", "Meadow", "Melon", "Mesa", "Meteor", "Mint",
    "Mirror", "Mist", "Mole", "Monsoon", "Moon", "Moose", "Mosaic", "Moss", "Moth", "Mulberry",
    "Mule", "Mustard", "Myrtle", "Nebula", "Nectar", "Needle", "Nest", "Nettle", "Newt", "Nickel",
    "Nimbus", "North", "Nougat", "Nova", "Nutmeg", "Nylon", "Oak", "Oasis", "Ocean", "Ocelot",
    "Olive", "Onion", "Onyx", "Opal", "Orange", "Orbit", "Orchard", "Orchid", "Oregano", "Osprey",
    "Otter", "Owl", "Oxbow", "Oyster", "Paddle", "Panda", "Pansy", "Panther", "Papaya", "Paprika",
    "Parrot", "Parsley", "Pasture", "Peach", "Peak", "Peanut", "Pear", "Pearl", "Pebble", "Pelican",
    "Pepper", "Petal", "Petunia", "Pigeon", "Pillar", "Pine", "Plank", "Plateau", "Plaza", "Plum",
    "Polar", "Pollen", "Pond", "Poplar", "Poppy", "Prairie", "Prism", "Puffin", "Puma", "Pumpkin",
    "Python", "Quail", "Quarry", "Quartz", "Quill", "Quince", "Rabbit", "Radish", "Raft", "Rain",
    "Raisin", "Ranch", "Raven", "Reed", "Reef", "Relic", "Ridge", "River", "Robin", "Rocket",
    "Rose", "Rowan", "Ruby", "Rudder", "Russet", "Sable", "Saddle", "Saffron", "Sage", "Salmon",
    "Sand", "Sapphire", "Sardine", "Satin", "Savanna", "Scarlet", "Seal", "Sequoia", "Sesame",
    "Shadow", "Shale", "Shell", "Shore", "Shrub", "Sienna", "Silk", "Silver", "Skunk", "Slate",
    "Sleet", "Smoke", "Snail", "Snow", "Solar", "Sonnet", "Sorbet", "Sorrel", "Spark", "Sparrow",
    "Spice", "Spider", "Spinach", "Spring", "Spruce", "Squash", "Squid", "Star", "Steam", "Steel",
    "Stone", "Stork", "Storm", "Straw", "Stream", "Sugar", "Summit", "Swallow", "Swan", "Sycamore",
    "Tango", "Tapir", "Tea", "Teak", "Temple", "Tempest", "Thicket", "Thistle", "Thunder", "Thyme",
    "Tiger", "Timber", "Toad", "Toffee", "Tomato", "Topaz", "Torch", "Toucan", "Trail", "Trout",
    "Truffle", "Tulip", "Tundra", "Turnip", "Turtle", "Umber", "Umbra", "Urchin", "Valley",
    "Vanilla", "Vapor", "Velvet", "Verbena", "Vine", "Violet", "Viper", "Vista", "Volcano", "Vole",
    "Waffle", "Walnut", "Walrus", "Warbler", "Water", "Wave", "Weasel", "Whale", "Wheat", "Willow",
    "Wind", "Winter", "Wolf", "Wombat", "Woods", "Wren", "Yak", "Yarrow", "Yew", "Yolk", "Yucca",
    "Zebra", "Zenith", "Zephyr", "Zinc", "Zinnia",
};
/* clang-format on */
