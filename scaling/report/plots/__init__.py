"""Pictures of runs, as PNG, SVG and PDF: one file for each kind, one style (`style`)."""

from scaling.report.plots.bandwidth import plot_bandwidth as plot_bandwidth
from scaling.report.plots.memory import plot_memory as plot_memory
from scaling.report.plots.roofline import RooflinePoint as RooflinePoint
from scaling.report.plots.roofline import plot_roofline as plot_roofline
from scaling.report.plots.steps import plot_steps as plot_steps
from scaling.report.plots.style import check_picture as check_picture
from scaling.report.plots.style import picture as picture
