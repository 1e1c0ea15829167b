"""Pictures of runs, as PNG, SVG and PDF: one file for each kind, one style (`style`)."""

from scaling.pictures.plots.bandwidth import plot_bandwidth as plot_bandwidth
from scaling.pictures.plots.cluster import plot_cluster as plot_cluster
from scaling.pictures.plots.memory import plot_memory as plot_memory
from scaling.pictures.plots.mesh import plot_mesh as plot_mesh
from scaling.pictures.plots.ring import plot_ring as plot_ring
from scaling.pictures.plots.roofline import RooflinePoint as RooflinePoint
from scaling.pictures.plots.roofline import plot_roofline as plot_roofline
from scaling.pictures.plots.roofline import plot_step_roofline as plot_step_roofline
from scaling.pictures.plots.scaling import plot_scaling as plot_scaling
from scaling.pictures.plots.scatter import ScatterPoint as ScatterPoint
from scaling.pictures.plots.scatter import plot_scatter as plot_scatter
from scaling.pictures.plots.steps import plot_steps as plot_steps
from scaling.pictures.plots.style import check_picture as check_picture
from scaling.pictures.plots.style import picture as picture
from scaling.pictures.plots.timeline import plot_timeline as plot_timeline
