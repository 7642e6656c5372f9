"""Building a corpus against bare SentencePiece, and whether its memory grows with the text.

    python -m benchmarks.corpus [--data DIRECTORY] [--megabytes 24] [--record]

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

import json
import lzma
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.script import DATA, run
from routelaw.bench.results import Row, row
from routelaw.corpus import Tokenizer, build_corpus
from routelaw.corpus.sources import Reading, find_files, read_documents

WANTED = {"ratio_text": (0.9, math.inf)}
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


@dataclass(frozen=True)
class Options:
    data: Path = DATA / "corpus"
    """Directory with mix.txt.xz and small/*.txt.xz."""
    megabytes: int = 24
    """Text for the comparison of speed."""
    rounds: int = 3

    @property
    def source(self) -> str:
        mix = self.data / "mix.txt.xz"
        return str(mix) if mix.is_file() else "python"


def rows(options: Options) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        documents = take_documents(options.source, options.megabytes * 10**6)
        yield row("speed", compare_speed(documents, Path(folder), options.rounds))
        if options.source != "python":
            small = [str(p) for p in sorted((options.data / "small").glob("*.txt.xz"))]
            for name, sources in (("small", small), ("large", [options.source])):
                yield row(f"memory, {name}", peak_memory(sources, Path(folder) / name))


def take_documents(source: str, enough: int) -> list[str]:
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
    rounds_found = []
    for number in range(rounds):
        bare, bare_cpu = timed(lambda: pieces.encode(documents, num_threads=2))
        ours, our_cpu = timed(lambda n=number: build_corpus([text], folder / f"text{n}", tokenizer=model, workers=2))
        unpacking, _ = timed(lambda: lzma.decompress(packed.read_bytes()))
        ours_xz, _ = timed(lambda n=number: build_corpus([packed], folder / f"xz{n}", tokenizer=model, workers=2))
        rounds_found.append(
            {
                "ratio_text": bare / ours,
                "ratio_processor_time": bare_cpu / our_cpu,
                "ratio_xz": (bare + unpacking) / ours_xz,
                "sentencepiece_mb_per_s": megabytes / bare,
                "build_mb_per_s": megabytes / ours,
            }
        )
    medians = {name: statistics.median(found[name] for found in rounds_found) for name in rounds_found[0]}
    return {"megabytes": round(megabytes)} | medians


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds on the clock, and seconds of processors (all threads and finished child processes)."""
    begin, spent = time.perf_counter(), sum(os.times()[:4])
    work()
    return time.perf_counter() - begin, sum(os.times()[:4]) - spent


def peak_memory(sources: list[str], folder: Path) -> dict[str, float]:
    """Peak memory in MiB of a whole build in a process of its own, and of its largest worker."""
    program = folder.with_suffix(".py")
    program.write_text(MEASURE_BUILD)
    command = [sys.executable, str(program), str(folder), *sources]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    process, worker, seconds, megabytes = json.loads(done.stdout)
    return {"mb": megabytes, "process_peak_mib": process, "worker_peak_mib": worker, "seconds": seconds}


if __name__ == "__main__":
    run("corpus", __doc__, Options, rows, lambda o: f"{o.megabytes} MB of {Path(o.source).name}", wanted=WANTED)
