"""The paper's shuffle where a block spans several processes: tokens go to the processes that have their groups.

A block of tokens lies one part after the other on neighbouring processes of the batch. Its permutation is a function of
(seed, step, layer, token), so every process knows all of it: a part goes out sorted by where it is needed, and what
arrives is put in the order of the groups. `restore` undoes the same steps.

Shapes: T tokens of this process, B = span·T tokens of the block, D width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from routelaw.model.exchange import permuted
from routelaw.model.parallel import Group


@dataclass(frozen=True)
class Shuffle:
    group: Group
    token_T: Tensor
    """Global numbers of the tokens that this process routes."""
    outgoing_T: Tensor
    """Own tokens in the order of their destination."""
    incoming_T: Tensor
    """Arrivals in the order of the groups."""
    sent: list[int]
    received: list[int]

    def send(self, x_TD: Tensor) -> Tensor:
        arrived_TD = self.group.exchange(permuted(x_TD, self.outgoing_T), self.sent, self.received)
        return permuted(arrived_TD, self.incoming_T)

    def restore(self, x_TD: Tensor) -> Tensor:
        by_origin_TD = permuted(x_TD, torch.argsort(self.incoming_T))
        back_TD = self.group.exchange(by_origin_TD, self.received, self.sent)
        return permuted(back_TD, torch.argsort(self.outgoing_T))


def plan_shuffle(key_B: Tensor, first_token: Tensor, span: int, group: Group) -> Shuffle:
    """From the random keys of a whole block, in the order of its tokens, of which the first has this number."""
    T = len(key_B) // span
    place = group.rank % span
    order_B = torch.argsort(key_B, stable=True)
    position_B = torch.argsort(order_B)  # where each token of the block goes
    mine = slice(place * T, (place + 1) * T)
    outgoing_T = torch.argsort(position_B[mine])
    source_T = order_B[mine] // T
    incoming_T = torch.argsort(torch.argsort(source_T, stable=True))
    begin = group.rank - place
    sent, received = [0] * group.size, [0] * group.size
    sent[begin : begin + span] = torch.bincount(position_B[mine] // T, minlength=span).tolist()
    received[begin : begin + span] = torch.bincount(source_T, minlength=span).tolist()
    return Shuffle(group, first_token + order_B[mine], outgoing_T, incoming_T, sent, received)
