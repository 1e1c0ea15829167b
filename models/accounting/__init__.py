"""Parameters, FLOPs and activation bytes of a model, from its configuration alone (no jax)."""

from scaling.models.accounting.activations import activation_bytes as activation_bytes
from scaling.models.accounting.activations import activation_tensors as activation_tensors
from scaling.models.accounting.activations import kv_cache_bytes as kv_cache_bytes
from scaling.models.accounting.context import exchanged_bytes as exchanged_bytes
from scaling.models.accounting.context import scores_share as scores_share
from scaling.models.accounting.flops import Flops as Flops
from scaling.models.accounting.flops import forward_flops as forward_flops
from scaling.models.accounting.flops import hardware_flops as hardware_flops
from scaling.models.accounting.flops import model_flops as model_flops
from scaling.models.accounting.flops import train_flops as train_flops
from scaling.models.accounting.parameters import Parameters as Parameters
from scaling.models.accounting.parameters import block_parameters as block_parameters
from scaling.models.accounting.parameters import count_parameters as count_parameters
