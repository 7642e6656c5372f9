"""A text made up of seeded words, and every format it may come in."""

import gzip
import json
import lzma
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

VOCABULARY = 420
SIGNS = [" ", " ", " ", " ", "  ", "\n", "\n\n", ", ", ". ", "\t", "\r\n", "_", " 12", "é", " \u2581", "日", "    "]


def make_documents(count: int = 60, words: int = 120) -> list[str]:
    draw = random.Random(5)
    lexicon = ["".join(draw.choices("aeioubcdfglmnprst", k=draw.randint(1, 8))) for _ in range(150)]
    weights = [1 / (rank + 1) for rank in range(len(lexicon))]
    return [
        "".join(w + draw.choice(SIGNS) for w in draw.choices(lexicon, weights, k=draw.randint(1, 2 * words))) + "end"
        for _ in range(count)
    ]


def write_documents(documents: list[str], path: Path) -> Path:
    """The documents in the format that the name asks for."""
    kind, _, codec = path.name.partition(".")[2].partition(".")
    if kind == "parquet":
        pq.write_table(pa.table({"text": documents, "number": range(len(documents))}), path, row_group_size=7)
        return path
    if kind == "jsonl":
        content = "".join(json.dumps({"number": 1, "text": text}) + "\n" for text in documents).encode()
    else:
        content = "".join(f"{text}\n<|endoftext|>\n" for text in documents).encode()
    path.write_bytes(compress(content, codec))
    return path


def compress(content: bytes, codec: str) -> bytes:
    match codec:
        case "gz":
            return gzip.compress(content, mtime=0)  # the same bytes in every test process
        case "xz":
            return lzma.compress(content)
        case "zst":
            sink = pa.BufferOutputStream()
            with pa.CompressedOutputStream(sink, "zstd") as stream:
                stream.write(content)
            return sink.getvalue().to_pybytes()
    return content
