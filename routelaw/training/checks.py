"""What is wrong with a run, found before anything is written: of its spec, its corpora, and how it is carried out.

Sinkhorn, exact assignment, capacity and the balance loss act on groups of tokens fixed by the spec, so that any split
of a batch into micro-batches or devices computes the same thing. (The shuffle that deals tokens out anew in every layer
is `StepContext.members_of`, and across processes distributed/exchange.py.)
"""

from __future__ import annotations

from collections.abc import Mapping

from routelaw.corpus.batches import batch, validation_windows
from routelaw.corpus.manifest import VALIDATION
from routelaw.corpus.shards import Corpus
from routelaw.errors import InputError
from routelaw.evaluation.texts import held_out
from routelaw.evaluation.trial import check_whole_texts
from routelaw.routers.router import check_router, router_class
from routelaw.specs.layout import Layout, check_layout
from routelaw.specs.run import ExecutionSpec, RunSpec, TrainSpec
from routelaw.training.compiling import COMPILE_MODES
from routelaw.training.device import MOST_THREADS
from routelaw.training.state import OPTIMIZER_STATE_DTYPES


def check_run(spec: RunSpec, execution: ExecutionSpec, corpora: Mapping[str, Corpus]) -> None:
    """What would fail later, after something was written, fails here."""
    corpus, length = corpora[VALIDATION], spec.model.sequence_length
    if corpus.id != spec.corpus:
        raise InputError(f"{corpus.path} is corpus {corpus.id[:12]}, and the run was specified on {spec.corpus[:12]}.")
    if corpus.vocabulary > spec.model.vocabulary:
        raise InputError(
            f"{corpus.path} has a vocabulary of {corpus.vocabulary}, more than the model's {spec.model.vocabulary}."
        )
    if not corpus.validation.documents:
        raise InputError(
            f"{corpus.path} holds no text out, so a validation loss would be one of training: "
            "build it with --validation above 0."
        )
    if not spec.train.warmup_steps and spec.train.start_rate != TrainSpec(steps=1).start_rate:
        raise InputError("train.start_rate has no effect, since there are no warm-up steps: leave it out.")
    check_whole_texts(name for name in corpora if name != VALIDATION)
    if not 0 <= execution.threads <= MOST_THREADS:
        raise InputError(
            f"execution.threads must lie between 0 (torch's choice) and {MOST_THREADS}, not {execution.threads}."
        )
    if execution.hang_timeout < 1:
        raise InputError(f"execution.hang_timeout must be at least 1 second, not {execution.hang_timeout:g}.")
    for name in ("evaluate_every", "evaluate_tokens", "log_every", "save_every"):
        if getattr(execution, name) < 1:
            raise InputError(f"execution.{name} must be at least 1, not {getattr(execution, name)}.")
    if execution.keep < 0:
        raise InputError(f"execution.keep must be 0 (none of a run that has ended) or more, not {execution.keep}.")
    if execution.compile not in COMPILE_MODES:
        raise InputError(f"execution.compile is one of {', '.join(COMPILE_MODES)}, not {execution.compile!r}.")
    if execution.optimizer_state_dtype not in OPTIMIZER_STATE_DTYPES:
        known = ", ".join(OPTIMIZER_STATE_DTYPES)
        raise InputError(f"execution.optimizer_state_dtype is one of {known}, not {execution.optimizer_state_dtype!r}.")
    if execution.device == "cpu" or execution.layout.world > 1 or execution.precision == "float64":
        require_float32_moments(execution)
    if spec.routed_blocks:
        check_router(spec)
    check_split(spec, execution.micro_batches, execution.layout)
    batch(corpus, "train", spec.train.seed, 0, spec.train.batch, length)
    for each in corpora.values():
        split = held_out(each, corpus.manifest.tokenizer.sha256).name
        next(validation_windows(each, length, 1, tokens=1, split=split))


def require_float32_moments(execution: ExecutionSpec) -> None:
    if execution.optimizer_state_dtype != "float32":
        raise InputError(
            f"execution.optimizer_state_dtype = {execution.optimizer_state_dtype!r} is for runs of one GPU; "
            "leave it 'float32' here."
        )


def check_split(spec: RunSpec, micro_batches: int, layout: Layout | None = None) -> None:
    """Each process holds whole sequences of a micro-batch, and whole groups where groups matter."""
    router = spec.router
    # A router may decide token by token (`uses_groups = False`); without capacity its groups then matter to nobody.
    uses_groups = spec.routed_blocks and (router.capacity_factor > 0 or router_class(router.name).uses_groups)
    check_layout(spec, layout or Layout(), micro_batches, bool(uses_groups))
