"""Word pools that Starter's templated tasks are made from.

`TRAIN` and `HELD_OUT` share no word, and neither holds an instruction word or a directory name: a held-out task
is made of names that no train task can show.
"""

from __future__ import annotations

_TRAIN = """
acorn amber angle apple apron arrow aspen
atlas badge bagel banana barley barn basil basket beach beetle bell berry birch bloom boat bottle branch brass bread
brick bridge bronze brook broom brush bucket butter button cabin cactus camel candle canoe canvas carbon carpet
carrot castle cedar cello chalk cherry clay cliff clock clover coast cobalt cocoa comet compass copper coral cotton
crane cream cricket crown crystal curtain daisy desert diamond dolphin donkey dragon drum eagle ember engine falcon
feather fern ferry fiddle flame flint flute forest fossil fox frost garden garlic garnet ginger glacier globe goose
grape gravel guitar hammer harbor hazel helmet hill honey horse island ivory jacket jasmine jewel kettle kitten
ladder lantern leaf lemon lentil lily lion lizard lobster magnet mango maple marble meadow melon mirror moss mule
needle nickel oak ocean olive onion orchid otter blanket bison canary cabbage cloak cougar drawer emerald gazelle
gondola meteor
"""
_HELD_OUT = """
panda paper parrot peach peanut pearl pebble pelican pencil pepper piano pillow pine planet plum pocket pond poplar
potato prairie prism pumpkin quartz quill rabbit radish rain raven reef ribbon rice ridge river robin rocket rose
ruby saddle saffron salmon salt sand satin scarf shark shell shovel silk silver sky slate sleet snail snow spade
spark sparrow spice spider spruce squash stone storm straw stream sugar summit sunset swan table tango teapot
thistle thread thunder ticket tiger timber toast tomato topaz torch tower trail trumpet tulip tunnel turnip turtle
valley vanilla velvet violet violin walnut walrus wasp water wave wheat wheel whistle willow window winter wolf wool
wren yarn yogurt zebra zinc anchor badger bamboo beacon beaver cannon cavern chimney clam cloud cobra crab crater
cushion dagger dune easel elbow fig finch flask kayak kiwi koala lagoon lamp lava lettuce lime lotus lynx magpie
mammoth moth ostrich oyster paddle pigeon
"""

TRAIN: tuple[str, ...] = tuple(_TRAIN.split())
HELD_OUT: tuple[str, ...] = tuple(_HELD_OUT.split())
