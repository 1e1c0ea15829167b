"""Pictures: pure functions of figures that return shapes, and two writers that draw them.

shapes, palette, legend, axes      what pictures are made of
chart, rows, bars                  series in axes; rows of boxes, areas and marks
svg, files                         SVG text for pages; .svg, .png and .pdf files
curves, roofline, timeline, ...    the pictures
"""
