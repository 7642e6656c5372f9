"""A trained run, opened again: its model as the newest whole checkpoint left it, its tokenizer, losses and result."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from routelaw.corpus.tokenizer import Tokenizer
from routelaw.errors import InputError
from routelaw.evaluation.measure import Trial, as_in_training, is_last_word, run_corpus_trial, run_trial
from routelaw.model.transformer import Transformer
from routelaw.routers.router import check_plugin, load_router
from routelaw.runs.folders import check_loss_name, last_evaluation
from routelaw.runs.store import StoredRun
from routelaw.runs.text_results import EVALUATE_TOKENS, add_results
from routelaw.specs.run import ExecutionSpec, RunSpec, describe
from routelaw.training.checkpoint import MODEL, fitting_tensors, latest_checkpoint
from routelaw.training.device import prepare, resolve_device, resolve_precision
from routelaw.training.folder import RunFolder, finite
from routelaw.training.run import Result

if TYPE_CHECKING:
    from routelaw.runs.table import RunTable

TEXT = "text"
"""The name of an evaluation that nobody named."""


@dataclass(frozen=True)
class Trained:
    spec: RunSpec
    step: int
    model: Transformer
    tokenizer: Tokenizer
    device: torch.device


def open_trained(
    folder: Path,
    device: str = "auto",
    precision: str = "auto",
    notice: Callable[[str], None] = lambda _: None,
) -> Trained:
    files = RunFolder(folder)
    spec, tokenizer = files.spec(), files.tokenizer()
    if spec.routed_blocks:
        check_plugin(spec.router)
    where = resolve_device(device)
    saved = latest_checkpoint(files.checkpoints, spec, notice, kinds=(MODEL,))
    if saved is None:
        raise InputError(f"{folder} has no whole checkpoint to evaluate.")
    model = Transformer(spec)
    with fitting_tensors(saved.path):
        model.load_state_dict(saved.model)
    dtype = resolve_precision(precision, where)
    prepare(where, dtype, notice)
    model.to(device=where, dtype=dtype)
    return Trained(spec, saved.step, model, tokenizer, where)


@dataclass(eq=False, repr=False)
class Run:
    """The folder of a run, trained or in training.

    >>> run = rl.Run.load("trained")
    >>> run
    Run(switch 0.05M E=2, finished, in trained)
    >>> run.result.step
    4
    """

    folder: Path
    device: str = "auto"
    """Where its model is loaded to: auto, cpu or cuda."""
    precision: str = "auto"
    """auto: bfloat16 on a GPU, float32 on a CPU."""
    notice: Callable[[str], None] = field(default=logging.getLogger("routelaw").warning)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        device: str = "auto",
        precision: str = "auto",
        plugins: Sequence[str | Path] = (),
        notice: Callable[[str], None] = logging.getLogger("routelaw").warning,
    ) -> Run:
        """The run in this folder. `plugins` are the files that register its router, if it is one of your own. The model
        is read when it is first asked for.

        >>> rl.Run.load("trained", device="cpu").spec.router.name
        'switch'
        """
        for plugin in plugins:
            load_router(Path(plugin))
        run = cls(Path(path), device, precision, notice)
        _ = run.spec
        return run

    @cached_property
    def spec(self) -> RunSpec:
        """What the run is."""
        return RunFolder(self.folder).spec()

    @cached_property
    def trained(self) -> Trained:
        """Model, tokenizer, device and step, as the newest whole checkpoint has them."""
        return open_trained(self.folder, self.device, self.precision, self.notice)

    @property
    def model(self) -> Transformer:
        """The model with the weights of the newest whole checkpoint, in evaluation mode.

        >>> not run.model.training, sum(p.numel() for p in run.model.parameters()) > 50_000
        (True, True)
        """
        return self.trained.model.eval()

    @property
    def result(self) -> Result | None:
        """How the run ended; None while it has not."""
        stored = StoredRun(self.spec.run_id, self.folder).result
        if not stored:
            return None
        loss, skipped = stored.get("loss_validation"), stored.get("skipped", 0)
        return Result(
            self.spec.run_id, stored["status"], stored.get("step", 0), loss, skipped, stored.get("seconds", 0.0)
        )

    @property
    def table(self) -> RunTable:
        """The run table of this run: one row per evaluation.

        >>> run.table.frame["step"].tolist()
        [2, 4]
        """
        from routelaw.runs.files import read_runs

        return read_runs(self.folder)

    def evaluate(
        self,
        path: str | Path | None = None,
        *,
        text: str | None = None,
        name: str | None = None,
        stride: int | None = None,
        limit: int | None = None,
        documents: str | None = None,
        key: str = "text",
        errors: str = "strict",
        record: bool = True,
    ) -> Trial:
        """Nats per token, bits per byte and perplexity of a corpus or a file of text, or of `text` itself.

        A corpus is measured as training does, on at most `execution.evaluate_tokens` tokens, unless `stride` or `limit`
        is given. Of anything else, windows move on by `stride` tokens, half a sequence unless given; `limit` bounds the
        documents. Under the name lambada it is the accuracy on the last word of each passage. The result of a text with
        a name is added to the run's eval.jsonl, unless `record` is False: it makes the columns loss_NAME, bpb_NAME and
        acc_NAME of its table.

        >>> found = run.evaluate("texts.txt", name="mine")
        >>> found.nats_per_token < 6, found.bits_per_byte > 1
        (True, True)
        >>> run.evaluate(text="to be or not to be").perplexity > 1
        True
        """
        if (path is None) == (text is None):
            raise InputError("evaluate takes either a path (of a corpus or a file of text) or text=….")
        if name is not None:
            check_loss_name(name, "evaluate")
        called = TEXT if name is None else name
        if stride is not None and is_last_word(called):
            raise InputError("stride has no effect where the last word of each passage is all that is measured.")
        reading: dict[str, Any] = {"stride": stride, "limit": limit, "key": key, "errors": errors}
        trained = self.trained
        if text is None:
            assert path is not None
            given = (trained.model, trained.tokenizer, called, Path(path), trained.device)
            if as_in_training(called, Path(path), stride, limit):
                found = run_corpus_trial(*given, self._evaluate_tokens())
            else:
                found = run_trial(*given, documents=documents, **reading)
        else:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "text.txt"
                file.write_text(text, encoding="utf-8", errors="surrogatepass")
                given = (trained.model, trained.tokenizer, called, file, trained.device)
                found = replace(run_trial(*given, documents=documents or "file", **reading), path=Path(TEXT))
        if record and name is not None:
            self.record([found])
        return found

    def _evaluate_tokens(self) -> int:
        """Most tokens of a corpus that this run's evaluations read while it was trained."""
        said = last_evaluation(self.folder).get(EVALUATE_TOKENS)
        if type(said) is int and said > 0:
            return said
        usual = ExecutionSpec().evaluate_tokens
        self.notice(f"{self.folder} does not say on how many tokens it was evaluated: taken as {usual:,}, as usual.")
        return usual

    def record(self, trials: Sequence[Trial]) -> None:
        """Add results to the run's eval.jsonl, all or none: they become columns of its run table."""
        at = {"run_id": self.spec.run_id, "step": self.trained.step}
        add_results(self.folder, [finite({**at, **trial.as_dict()}) for trial in trials])

    def __repr__(self) -> str:
        result = self.result
        return f"Run({describe(self.spec)}, {'not ended' if result is None else result.status}, in {self.folder})"
