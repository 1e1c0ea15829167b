"""What is run, as plain data: the Run of run.json, recipes, optimizers, and a Run's parallelism."""

from scaling.run.document import load_run as load_run
from scaling.run.document import read_run as read_run
from scaling.run.document import run_dict as run_dict
from scaling.run.document import save_run as save_run
from scaling.run.run import OURS as OURS
from scaling.run.run import Batch as Batch
from scaling.run.run import ClusterChoice as ClusterChoice
from scaling.run.run import Context as Context
from scaling.run.run import Group as Group
from scaling.run.run import Loss as Loss
from scaling.run.run import Module as Module
from scaling.run.run import Overlap as Overlap
from scaling.run.run import Pipeline as Pipeline
from scaling.run.run import Precision as Precision
from scaling.run.run import Run as Run
from scaling.run.run import Sharding as Sharding
from scaling.run.run import Train as Train
