"""Pictures as SVG text, which a page or a notebook shows as it is; no dependency but numpy."""
