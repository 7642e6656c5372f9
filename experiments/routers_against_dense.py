"""Does every router lower the loss below a dense model of the same active size, on a corpus that every machine has?

    python experiments/routers_against_dense.py [--size 0.2M] [--experts 8] [--steps 800] [--seeds 2] [--processes 2]
    [--out out/routers]

Trains dense, switch, s-base, base, hash and rl-r on the text of the running Python's standard library (built in a
minute, vocabulary 2048), sequences of 128, 32 a step, AdamW at 3e-3, and prints the final validation loss of each
against dense, with the spread of the seeds. Cost: about five minutes a run on one core; twelve runs. Result and date:
docs/log/2026-11-15-routers-against-dense.md.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROUTERS = ("dense", "switch", "s-base", "base", "hash", "rl-r")
VOCABULARY, SEQUENCE, BATCH, RATE = 2048, 128, 32, 3e-3


def train_one(job: tuple[str, int, int, int, str, Path, Path]) -> tuple[str, int, float | None, str, float]:
    router, experts, steps, seed, size, corpus_path, folder = job
    from routelaw.corpus import open_corpus
    from routelaw.specs.run import ExecutionSpec, ModelSpec, RouterSpec, RunSpec, TrainSpec
    from routelaw.specs.sizes import get_size
    from routelaw.training.run import run

    corpus = open_corpus(corpus_path)
    spec = RunSpec(
        model=ModelSpec(get_size(size), vocabulary=corpus.vocabulary, sequence_length=SEQUENCE),
        router=RouterSpec(name=router, experts=1 if router == "dense" else experts),
        train=TrainSpec(steps=steps, batch=BATCH, learning_rate=RATE, seed=seed),
        corpus=corpus.id,
    )
    execution = ExecutionSpec(device="cpu", threads=1, evaluate_every=steps, save_every=steps, log_every=50)
    began = time.perf_counter()
    result = run(spec, execution, corpus, folder / spec.run_id)
    return router, seed, result.loss_validation, result.status, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--size", default="0.2M")
    parser.add_argument("--experts", type=int, default=8)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("out/routers"))
    options = parser.parse_args()
    from routelaw.corpus import build_corpus

    corpus_path = options.out / "corpus"
    if not corpus_path.exists():
        build_corpus(["python"], corpus_path, vocabulary=VOCABULARY, validation=0.02)
    jobs = [
        (router, options.experts, options.steps, seed, options.size, corpus_path, options.out / "runs")
        for router in ROUTERS
        for seed in range(options.seeds)
    ]
    losses: dict[str, list[float]] = {router: [] for router in ROUTERS}
    with ProcessPoolExecutor(options.processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        for router, seed, loss, status, seconds in pool.map(train_one, jobs):
            print(f"{router:8} seed {seed}: {status}, loss {loss}, {seconds:.0f} s", flush=True)
            if loss is not None:
                losses[router].append(loss)
    dense = sum(losses["dense"]) / len(losses["dense"])
    print(f"\n{options.size}, E = {options.experts}, {options.steps} steps of {BATCH * SEQUENCE} tokens")
    print("| router | validation loss, mean | spread of seeds | below dense |\n|---|---|---|---|")
    for router, values in losses.items():
        mean = sum(values) / max(len(values), 1)
        print(f"| {router} | {mean:.4f} | {max(values) - min(values):.4f} | {dense - mean:+.4f} |")


if __name__ == "__main__":
    main()
