"""Pictures: pure functions of figures that return shapes, and two writers that draw them.

shapes, legend, axes, chart, bars, rows    what pictures are made of
svg, files                                 SVG text for pages; .svg, .png and .pdf files
one file for each picture                  cluster, mesh, memory, roofline, timeline, ...
"""
