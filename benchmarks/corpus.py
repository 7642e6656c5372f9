"""Building a corpus against bare SentencePiece, and whether its memory grows with the text.

    python benchmarks/corpus.py [--data DIRECTORY] [--megabytes 24]

Speed: the same text, already unpacked, with the same tokenizer and two cores for both. The baseline is
`sentencepiece.encode(documents, num_threads=2)` on documents that lie in memory: it reads, checks and writes nothing.
Ours runs from the file to a corpus on disk, with the start of its two worker processes and all hashes. A second ratio
gives both the packed .xz: the baseline then unpacks first, ours while encoding.
They are measured in turns, and the median of the ratios counts, since other work on the machine
disturbs both. It favours whoever runs more processes, so the ratio of processor time is given too.

Memory: peak resident memory of the process and of its largest worker, tokenizer training included, for the nine domains
of small/ and for the longer mix, as VmHWM of /proc: getrusage would do no good, for ru_maxrss outlives exec, so a child
shows the memory of the process that started it. Without that data the text of the Python library stands in, and
memory is left out.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ledger import HERE, append

from routelaw.corpus import Tokenizer, build_corpus
from routelaw.corpus.sources import Reading, find_files, read_documents

BESIDE = HERE.parent / ".." / "shared" / "data" / "corpus"
TARGET_RATIO = 0.9
SEPARATOR = "\n<|endoftext|>\n"
MEASURE_BUILD = """
import json, sys, threading, time
from multiprocessing import active_children
from pathlib import Path
from routelaw.corpus import build_corpus

def peak(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0)

def watch():
    while True:
        for child in active_children():
            try:
                workers[child.pid] = max(peak(child.pid), workers.get(child.pid, 0))
            except OSError:
                pass
        time.sleep(0.05)

if __name__ == "__main__":
    workers = {}
    threading.Thread(target=watch, daemon=True).start()
    begin = time.perf_counter()
    corpus = build_corpus(sys.argv[2:], sys.argv[1], workers=2)
    seconds = time.perf_counter() - begin
    total = sum(split.bytes for split in corpus.splits.values())
    print(json.dumps([peak("self"), max(workers.values()), seconds, total / 1e6]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=BESIDE, help="directory with mix.txt.xz and small/*.txt.xz")
    parser.add_argument("--megabytes", type=int, default=24, help="text for the comparison of speed")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    at_hand = (options.data / "mix.txt.xz").is_file()
    source = options.data / "mix.txt.xz" if at_hand else "python"
    with tempfile.TemporaryDirectory() as folder:
        documents = take_documents(source, options.megabytes * 10**6)
        figures = compare_speed(documents, Path(folder), options.rounds)
        if at_hand:
            small = [str(p) for p in sorted((options.data / "small").glob("*.txt.xz"))]
            figures |= compare_memory(small, [str(source)], Path(folder))
    append("corpus", f"{figures['megabytes']} MB of {Path(source).name}", figures)
    print(
        f"speed against bare SentencePiece: {figures['ratio_text']:.2f} (target {TARGET_RATIO}), "
        f"packed {figures['ratio_xz']:.2f}"
    )


def take_documents(source: str | Path, enough: int) -> list[str]:
    """Whole documents until there is enough text."""
    documents, begun, total = [], b"", 0
    for fragment in read_documents(find_files([source]), Reading(), lambda count: None):
        begun += fragment.data
        if fragment.ends:
            documents.append(begun.decode())
            total, begun = total + len(begun), b""
        if total >= enough:
            break
    return documents


def compare_speed(documents: list[str], folder: Path, rounds: int) -> dict[str, float]:
    text, packed = folder / "text.txt", folder / "text.txt.xz"
    text.write_text("".join(document + SEPARATOR for document in documents), encoding="utf-8")
    packed.write_bytes(lzma.compress(text.read_bytes()))
    megabytes = text.stat().st_size / 1e6
    # The tokenizer, which both are given, comes from a build that is not timed.
    model = build_corpus([text], folder / "first", workers=2).path / "tokenizer.model"
    pieces = Tokenizer(model.read_bytes())._pieces
    rows = []
    for number in range(rounds):
        bare, bare_cpu = timed(lambda: pieces.encode(documents, num_threads=2))
        ours, our_cpu = timed(lambda n=number: build_corpus([text], folder / f"text{n}", tokenizer=model, workers=2))
        unpacking, _ = timed(lambda: lzma.decompress(packed.read_bytes()))
        ours_xz, _ = timed(lambda n=number: build_corpus([packed], folder / f"xz{n}", tokenizer=model, workers=2))
        rows.append((bare / ours, bare_cpu / our_cpu, (bare + unpacking) / ours_xz, megabytes / bare, megabytes / ours))
        print("ratio {:.2f} (processor time {:.2f}, packed {:.2f}), {:.2f} and {:.2f} MB/s".format(*rows[-1]))
    ratio, ratio_cpu, ratio_xz, bare_rate, our_rate = (round(statistics.median(c), 3) for c in zip(*rows, strict=True))
    return {
        "megabytes": round(megabytes),
        "ratio_text": ratio,
        "ratio_processor_time": ratio_cpu,
        "ratio_xz": ratio_xz,
        "sentencepiece_mb_per_s": bare_rate,
        "build_mb_per_s": our_rate,
    }


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds on the clock, and seconds of processors (all threads and finished child processes)."""
    begin, spent = time.perf_counter(), sum(os.times()[:4])
    work()
    return time.perf_counter() - begin, sum(os.times()[:4]) - spent


def compare_memory(small: list[str], large: list[str], folder: Path) -> dict[str, float]:
    """Peak memory of two whole builds, each in a process of its own."""
    program = folder / "measure_build.py"
    program.write_text(MEASURE_BUILD)
    figures: dict[str, float] = {}
    for name, sources in (("small", small), ("large", large)):
        command = [sys.executable, str(program), str(folder / name), *sources]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        process, worker, seconds, megabytes = json.loads(done.stdout)
        print(f"{megabytes:.0f} MB: process {process:.0f} MiB, worker {worker:.0f} MiB, {seconds:.0f} s", flush=True)
        figures |= {
            f"{name}_mb": round(megabytes),
            f"{name}_process_peak_mib": round(process),
            f"{name}_worker_peak_mib": round(worker),
        }
    return figures


if __name__ == "__main__":
    main()
