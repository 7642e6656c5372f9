"""What a process holds of a run's state, as boxes of the whole model's tensors."""

from __future__ import annotations

from torch import Tensor

from routelaw.model.cuts import TensorShard, is_tensor_split
from routelaw.model.transformer import Transformer
from routelaw.training.boxes import Piece
from routelaw.training.optimizer import MASTER, Optimizer, local_part

STEP = "step"


def model_pieces(model: Transformer) -> dict[str, Piece]:
    """Parameters by their boxes; buffers, which every process has whole, from the first."""
    pieces = {name: _piece(name, p, model.cuts[name], model) for name, p in model.named_parameters()}
    for name, buffer in model.named_buffers():
        if name in dict(model.state_dict()):
            pieces[name] = _whole(buffer, model)
    return pieces


def optimizer_pieces(model: Transformer, optimizer: Optimizer) -> dict[str, Piece]:
    """Moments lie as their parameters do; so do masters where these are not the parameters. Steps are numbers."""
    pieces = {}
    for name, master in optimizer.masters.items():
        cut = model.cuts[name]
        for key, value in optimizer.statistics.get(name, {}).items():
            own = _whole(value, model) if key == STEP else _piece(name, value, cut, model)
            pieces[f"{key}/{name}"] = own
        if master is not optimizer.parameters[name]:
            pieces[f"{MASTER}/{name}"] = _piece(name, master.detach(), cut, model)
    return pieces


def _piece(name: str, tensor: Tensor, cut: TensorShard, model: Transformer) -> Piece:
    start = list(cut.start)
    if local_part(tensor) is not tensor:  # FSDP's shards are those of torch.chunk
        mesh, dimension = tensor.device_mesh, tensor.placements[0].dim  # pyrefly: ignore
        chunk = -(-cut.length[dimension] // mesh.size())
        start[dimension] += min(mesh.get_local_rank() * chunk, cut.length[dimension])
    first = is_tensor_split(name) or model.parallel.tensor.rank == 0
    return Piece(local_part(tensor).detach(), cut.shape, tuple(start), first)


def _whole(tensor: Tensor, model: Transformer) -> Piece:
    own = local_part(tensor).detach()
    alone = model.parallel.batch.rank == 0 and model.parallel.tensor.rank == 0
    return Piece(own, tuple(own.shape), (0,) * own.ndim, alone)
