"""Pictures of runs, as PNG, SVG and PDF: one file for each kind, one style (`style`)."""

from scaling.report.plots.bandwidth import plot_bandwidth as plot_bandwidth
from scaling.report.plots.cluster import plot_cluster as plot_cluster
from scaling.report.plots.memory import plot_memory as plot_memory
from scaling.report.plots.mesh import plot_mesh as plot_mesh
from scaling.report.plots.ring import plot_ring as plot_ring
from scaling.report.plots.roofline import RooflinePoint as RooflinePoint
from scaling.report.plots.roofline import plot_roofline as plot_roofline
from scaling.report.plots.roofline import plot_step_roofline as plot_step_roofline
from scaling.report.plots.scaling import plot_scaling as plot_scaling
from scaling.report.plots.scatter import ScatterPoint as ScatterPoint
from scaling.report.plots.scatter import plot_scatter as plot_scatter
from scaling.report.plots.steps import plot_steps as plot_steps
from scaling.report.plots.style import check_picture as check_picture
from scaling.report.plots.style import picture as picture
from scaling.report.plots.timeline import plot_timeline as plot_timeline
