"""The colours of every picture: those of Okabe and Ito, which colour-blind readers can tell apart.

M. Okabe and K. Ito, "Color Universal Design", 2008, https://jfly.uni-koeln.de/color/; the order and
the grey are ours, so that neighbours in a stack also differ in lightness (tests/scaling/pictures/
test_palette.py). Their yellow is left out: it is too pale for lines on white.
"""

BLUE, SKY, VERMILION, ORANGE = "#0072b2", "#56b4e9", "#d55e00", "#e69f00"
GREY, GREEN, PURPLE, BLACK = "#bbbbbb", "#009e73", "#cc79a7", "#000000"
COLOURS = (BLUE, SKY, VERMILION, ORANGE, GREY, GREEN)
INK_ON = {BLUE: "white", BLACK: "white"}  # of words on a colour; else black
