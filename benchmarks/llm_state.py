"""A language model's training state in FSDP2's form: BLOOM's names and shapes, with fp32 parameters
and AdamW moments. Each tensor is sharded over the ranks along its first dimension. The numbers are
random; no model library is needed."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard


def shapes(layers, hidden, vocabulary):
    """Names and shapes of BloomForCausalLM's parameters (its output weights are the embedding's)."""
    found = {"transformer.word_embeddings.weight": (vocabulary, hidden)}

    def norm(name):
        found[name + ".weight"] = found[name + ".bias"] = (hidden,)

    def linear(name, rows, columns):
        found[name + ".weight"], found[name + ".bias"] = (rows, columns), (rows,)

    norm("transformer.word_embeddings_layernorm")
    for layer in range(layers):
        at = f"transformer.h.{layer}."
        norm(at + "input_layernorm")
        linear(at + "self_attention.query_key_value", 3 * hidden, hidden)
        linear(at + "self_attention.dense", hidden, hidden)
        norm(at + "post_attention_layernorm")
        linear(at + "mlp.dense_h_to_4h", 4 * hidden, hidden)
        linear(at + "mlp.dense_4h_to_h", hidden, 4 * hidden)
    norm("transformer.ln_f")
    return found


def make(layers, hidden, vocabulary, fill=True):
    """This rank's shards of the state, as a flat dict of DTensors. They are zeros unless `fill` is
    set."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    state = {}
    torch.manual_seed(dist.get_rank())
    for name, shape in shapes(layers, hidden, vocabulary).items():
        for part in ("model.", "optimizer.exp_avg.", "optimizer.exp_avg_sq."):
            rows = [len(chunk) for chunk in torch.arange(shape[0]).chunk(dist.get_world_size())]
            mine = (rows[dist.get_rank()] if dist.get_rank() < len(rows) else 0, *shape[1:])
            local = torch.rand(mine) if fill else torch.zeros(mine)
            stride = torch.empty(shape, device="meta").stride()
            state[part + name] = DTensor.from_local(
                local, mesh, [Shard(0)], run_check=False, shape=torch.Size(shape), stride=stride)
    return state


def local_bytes(state):
    return sum(tensor.to_local().nbytes for tensor in state.values())


def local_part(state):
    """The same as plain tensors of this rank alone, for libraries without shards."""
    return {name: tensor.to_local() for name, tensor in state.items()}


def differences(a, b):
    return [name for name in a if not torch.equal(a[name].to_local(), b[name].to_local())]
