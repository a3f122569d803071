"""tailrace for PyTorch: torch.save and torch.distributed.checkpoint, in K files.

    import tailrace.torch

    tailrace.torch.save(model.state_dict(), "model.tailrace")        # one process
    model.load_state_dict(tailrace.torch.load("model.tailrace"))

import torch.distributed.checkpoint as dcp
from tailrace.torch import StorageReader, StorageWriter

writer = StorageWriter(files=2)
future = dcp.async_save(state, checkpoint_id="ckpt/step-100", storage_writer=writer)
dcp.load(state, checkpoint_id="ckpt/step-100", storage_reader=StorageReader())
"""

from tailrace.torch._file import load, save
from tailrace.torch._lazy import TensorFile, open
from tailrace.torch._reader import StorageReader
from tailrace.torch._staging import AsyncStager
from tailrace.torch._writer import StorageWriter

__all__ = ["AsyncStager", "StorageReader", "StorageWriter", "TensorFile", "load", "open", "save"]
