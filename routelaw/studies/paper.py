"""The studies of Clark et al. 2022, in the paper's order."""

from __future__ import annotations

from functools import partial

from routelaw.errors import InputError
from routelaw.fitting.claims import Claim
from routelaw.specs.names import known_study
from routelaw.studies import (
    claims_on_architecture,
    claims_on_balance,
    claims_on_losses,
    claims_on_training,
)
from routelaw.studies.claims_on_variants import (
    all_blocks,
    balance_not_needed,
    entropy_adds_nothing,
    fewer_blocks,
    helps_at_largest,
    interleaving_helps_more,
    longer_helps_experts,
    longer_is_better,
    more_per_token,
    one_block_alike,
    place_matters_not,
    shared_like_hash,
    stacked_alike,
    worse_variant,
)
from routelaw.studies.study import Study

JUDGED_BEFORE = {
    claim.name: claim
    for module in (claims_on_losses, claims_on_architecture, claims_on_balance, claims_on_training)
    for claim in (*module.CLAIMS, *getattr(module, "COEFFICIENT_CLAIMS", ()))
}
"""The claims that one file judges for all who ask: by name."""


def _named(*names: str) -> tuple[Claim, ...]:
    return tuple(JUDGED_BEFORE[name] for name in names)


MORE_PER_TOKEN = Claim(
    "more per token", "More experts per token lower the loss of a model", more_per_token,
    "“Higher values of K invariably yield better performance per step”", "appendix D.5",
    "least mean gain of doubling K, %",
)  # fmt: skip
FREQUENCY = (
    Claim("r 1", "S-BASE gains from routing every block", partial(all_blocks, "s-base", 1),
          "“S-BASE scales well with routing frequency”", "appendix D.2", "R = 1/2 over R = 1, %"),
    Claim("r 1 hash", "HASH loses from routing every block", partial(all_blocks, "hash", -1),
          "“HASH degrades in performance”; in the figure it flattens", "appendix D.2", "R = 1 over R = 1/2, %"),
    Claim("r low", "Routing fewer than half of the blocks costs performance", fewer_blocks,
          "“Route layers at frequency 0.5 ≤ R ≤ 1; lower frequency reduces performance”", "section 5.1",
          "lowest R over R = 1/2, the lowest of the techniques, %"),
)  # fmt: skip
ONE_BLOCK = (
    Claim("one block alike", "With one routed block S-BASE and HASH are alike", one_block_alike,
          "“HASH and S-BASE have similar performance across expert counts in this case”", "appendix D.4",
          "S-BASE over HASH, nats"),
    Claim("place", "It does not matter which block is routed", place_matters_not,
          "the middle block was tried only with three FFWs per expert; ours", "appendix D.4",
          "middle over last but one, nats"),
)  # fmt: skip
SHARED = Claim(
    "shared hash", "With shared decisions S-BASE is like HASH", shared_like_hash,
    "“S-BASE and HASH have similar losses for shared routing decisions”", "appendix D.3",
    "S-BASE with shared decisions over HASH, nats",
)  # fmt: skip
STACKED = (
    Claim("interleaved more", "S-BASE gains more from interleaving than HASH", interleaving_helps_more,
          "“S-BASE benefits more from interleaving the routed and dense layers”", "appendix D.4",
          "gain of S-BASE less that of HASH, %"),
    Claim("stacked alike", "With stacked FFWs S-BASE and HASH are alike", stacked_alike,
          "“similar performance for S-BASE and HASH at 32E 1.3B … with three FFWs per expert”", "appendix D.4",
          "S-BASE over HASH, nats"),
)  # fmt: skip
RL = (
    Claim("nucleus", "Sampling from a nucleus is better than being greedy",
          partial(worse_variant, "variant=G", "variant=S"),
          "“Nucleus Sampling gives a significant improvement over Greedy Reinforce”", "appendix B.3", "G over S, %"),
    Claim("whole policy", "Sampling the whole policy is worse than its nucleus",
          partial(worse_variant, "nucleus=1,variant=S", "variant=S"),
          "sampling from π “substantially degraded performance at larger scales”", "appendix B.3",
          "whole policy over nucleus, %"),
    Claim("nucleus entropy", "An entropy term adds nothing to a nucleus", entropy_adds_nothing,
          "“we did not see an improvement from including both regularization methods”", "appendix B.3",
          "with over without, nats"),
)  # fmt: skip
NO_BALANCE = Claim(
    "no balance", "S-BASE does without a balance loss", balance_not_needed,
    "“competitive performance without a balancing loss, but training is less stable”", "appendix D.1",
    "without over with, nats",
)  # fmt: skip
LENGTHS = (
    Claim("not converged", "Longer training always lowers the loss", longer_is_better,
          "“not even our smallest models have saturated”", "appendix F.1", "least mean gain of a longer schedule, %"),
    Claim("longer experts", "More experts gain more from longer training", longer_helps_experts,
          "“exacerbated, when increasing the expert count”: 0.05 nats dense, 0.07 with E = 512", "appendix F.1",
          "b of the shortest schedule less b of the longest"),
)  # fmt: skip
AT_LARGEST = Claim(
    "limit", "Routing still helps at the largest size", helps_at_largest,
    "“the routed 7B model substantially outperforms the baseline”", "appendix G", "gain over the dense model, %",
)  # fmt: skip

STUDIES = (
    Study("main", "How does the loss depend on N and E, for each technique?", "section 4; section 5.1",
          ("joint_curves", "main_results"),
          _named("routing helps", "gain falls", "s-base >= rl-r", "rl-r >= hash", "s-base >= hash", "lowest c",
                 "e_start", "e_max")),
    Study("k", "Do more experts per token pay?", "section 4.4; appendix D.5", ("k_against_flops",),
          (*_named("k front"), MORE_PER_TOKEN, *_named("compute law", "k speed"))),
    Study("r", "How many of the blocks should be routed?", "section 4.4; appendix D.2", ("routing_frequency",),
          (*FREQUENCY, *_named("hash one layer"))),
    Study("single-layer", "Is HASH as good as S-BASE when a single block is routed, and does it matter which?",
          "appendix D.4", ("single_layer",), (*_named("hash one layer"), *ONE_BLOCK)),
    Study("shared-decisions", "Is it the deciding anew in every layer that makes S-BASE better than HASH?",
          "appendix D.3", ("shared_decisions",), (*_named("shared decisions"), SHARED)),
    Study("permuted-hash", "Would HASH gain from more paths through the model?", "appendix D.3", ("permuted_hash",),
          _named("permuted hash")),
    Study("stacked", "One routed layer of three FFWs per expert, or three routed layers?", "appendix D.4",
          ("stacked_ffws",), (*_named("interleaved"), *STACKED)),
    Study("rl-variants", "Which way of learning to route by reinforcement is best?", "appendix B.3", ("rl_variants",),
          (*_named("rl variants"), *RL)),
    Study("robustness", "How much does each technique depend on its weights?", "appendix D.1", ("robustness",),
          (*_named("balance", "balance rl-r", "over-subscription", "entropy"), NO_BALANCE)),
    Study("seeds", "How far apart are runs that differ in nothing but chance?", "appendix A", ("seeds",),
          _named("seeds")),
    Study("lengths", "Does the gain from experts depend on how long a model is trained?", "appendices F.1 and F.2",
          ("lengths",), (*_named("schedule"), *LENGTHS), any_length=True),
    Study("transfer", "Do routed models gain as much on text that they were not trained on?", "appendix E",
          ("transfer_coefficients", "transfer_slopes"), _named("zero-shot")),
    Study("limit", "Does routing still help at the largest size?", "appendix G", ("limit",), (AT_LARGEST,),
          any_length=True),
)  # fmt: skip

JUDGED = {claim.name: claim for study in STUDIES for claim in study.claims}
"""All claims by name."""


def get_study(name: str) -> Study:
    """The study of that name; an error names the nearest there is."""
    known = known_study(name)
    found = next((study for study in STUDIES if study.name == known), None)
    if found is None:
        raise InputError(f"study {known} has no claims to judge.")
    return found
