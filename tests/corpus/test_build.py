import os
import random
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from corpus_text import VOCABULARY, make_documents, write_documents

from routelaw.corpus import Corpus, Reading, Tokenizer, build_corpus, encode, fragments, open_corpus, sources
from routelaw.errors import InputError


def small(sources: list, out: Path, **options: object) -> Corpus:
    return build_corpus(sources, out, **{"vocabulary": VOCABULARY, "validation": 0.1, "workers": 1, **options})


def texts_of(corpus: Corpus) -> dict[str, list[str]]:
    decode = corpus.tokenizer.decode
    return {name: [decode(s.document(n)) for n in range(s.documents)] for name, s in corpus.splits.items()}


def content_of(path: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in path.iterdir()}


def test_every_document_is_in_one_split_in_order(corpus: Corpus, documents: list[str]) -> None:
    texts = texts_of(corpus)
    assert sorted(texts["train"] + texts["validation"]) == sorted(documents)
    assert texts["train"] == [d for d in documents if d in texts["train"]]
    assert 1 <= len(texts["validation"]) <= 15
    for name, split in corpus.splits.items():
        stream = split.tokens.read(0, len(split.tokens))
        assert split.bytes == sum(len(t.encode()) for t in texts[name]) == split.index_D2[-1, 1]
        assert split.frequencies_V.tolist() == np.bincount(stream, minlength=VOCABULARY).tolist()
        assert split.frequencies_V[corpus.end_of_text] == split.documents
        assert (stream[split.index_D2[:, 0].astype(int) - 1] == corpus.end_of_text).all()


@pytest.mark.parametrize("suffix", ["txt.gz", "txt.xz", "txt.zst", "jsonl", "jsonl.zst", "parquet"])
def test_every_format_gives_the_same_corpus(suffix: str, corpus: Corpus, documents: list[str], tmp_path: Path) -> None:
    source = write_documents(documents, tmp_path / f"a.{suffix}")
    other = small([source], tmp_path / "out", shard_tokens=1000)
    assert content_of(other.path) == content_of(corpus.path)
    assert other.id == corpus.id


def test_workers_change_nothing(
    corpus: Corpus, text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fragments, "CHUNK_BYTES", 4000)
    monkeypatch.setattr(encode, "FEW_CHUNKS", 2)
    other = small([text_file], tmp_path / "out", shard_tokens=1000, workers=2)
    assert content_of(other.path) == content_of(corpus.path)


def test_fragments_and_shards_change_no_token(
    corpus: Corpus, text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Documents cut at every line or word, and longer than a shard, chunks of a fragment: the same stream."""
    monkeypatch.setattr(fragments, "FRAGMENT_BYTES", 200)
    monkeypatch.setattr(fragments, "CHUNK_BYTES", 300)
    model = corpus.path / "tokenizer.model"
    other = small([text_file], tmp_path / "out", shard_tokens=50, tokenizer=model, validation=0)
    whole = small([text_file], tmp_path / "whole", tokenizer=model, validation=0)
    assert len(other.manifest.splits["train"].shards) > 100
    assert np.array_equal(
        other.train.tokens.read(0, len(other.train.tokens)), whole.train.tokens.read(0, len(whole.train.tokens))
    )
    assert np.array_equal(other.train.index_D2, whole.train.index_D2)
    assert other.validation.documents == 0


@pytest.mark.parametrize("share", [1e-9, 0.499])
def test_neither_split_is_left_empty(share: float, corpus: Corpus, tmp_path: Path) -> None:
    """With two documents either split may come out empty; then the document nearest to it changes sides."""
    for seed in range(8):
        texts = [f"first {seed}", f"second {seed}"]
        source = write_documents(texts, tmp_path / f"{seed}.txt")
        made = small([source], tmp_path / str(seed), validation=share, tokenizer=corpus.path / "tokenizer.model")
        found = texts_of(open_corpus(made.path, verify=True))
        assert sorted(found["train"] + found["validation"]) == texts
        assert len(found["train"]) == 1


def test_held_out_is_about_the_share(tmp_path: Path, corpus: Corpus) -> None:
    source = tmp_path / "a.txt"
    source.write_text("\n".join(f"document {n}" for n in range(4000)))
    made = small([source], tmp_path / "c", tokenizer=corpus.path / "tokenizer.model", reading=Reading(documents="line"))
    assert 330 < made.validation.documents < 470
    assert made.train.documents + made.validation.documents == 4000


def test_wide_tokens(tmp_path: Path, documents: list[str], corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("routelaw.corpus.tokenizer.token_type", lambda vocabulary: "<u4")
    monkeypatch.setattr("routelaw.corpus.shards.token_type", lambda vocabulary: "<u4")
    made = small([write_documents(documents, tmp_path / "a.txt")], tmp_path / "c")
    assert made.train.tokens.read(0, 5).dtype == np.uint32
    assert texts_of(made) == texts_of(corpus)


@pytest.mark.parametrize(
    ("content", "options", "sentence"),
    [
        (b"", {}, "there is no text"),
        (b"", {"tokenizer": True}, "there is no text in"),
        (b" \n<|endoftext|>\n\n", {"tokenizer": True}, "there is no text in"),
        (b"only one", {"tokenizer": True}, "single document"),
        (b"one\n<|endoftext|>\ntwo \xff\n", {"tokenizer": True}, r"a\.txt: byte 22 is not valid UTF-8"),
        (b"one\n<|endoftext|>\ntwo \xff\n", {}, r"a\.txt: byte 22 is not valid UTF-8"),
        (b"one\n<|endoftext|>\ntwo\n", {"vocabulary": 5000}, "larger than this text allows"),
        (b"x", {"validation": 0.7}, "share between 0 and 0.5"),
        (b"x", {"workers": -1}, "at least 1"),
    ],
)
def test_an_error_leaves_nothing(content: bytes, options: dict, sentence: str, corpus: Corpus, tmp_path: Path) -> None:
    source = tmp_path / "a.txt"
    source.write_bytes(content)
    if options.pop("tokenizer", False):
        options = {**options, "tokenizer": corpus.path / "tokenizer.model"}
    (tmp_path / "here").mkdir()
    with pytest.raises(InputError, match=sentence):
        small([source], tmp_path / "here" / "out", **options)
    assert list((tmp_path / "here").iterdir()) == []


def test_bad_bytes_may_be_replaced(corpus: Corpus, tmp_path: Path) -> None:
    source = tmp_path / "a.txt"
    source.write_bytes(b"one\n<|endoftext|>\ntwo \xff\n")
    model = corpus.path / "tokenizer.model"
    made = small([source], tmp_path / "c", tokenizer=model, validation=0, reading=Reading(errors="replace"))
    assert texts_of(made)["train"] == ["one", "two \ufffd"]


def test_existing_output(corpus: Corpus, text_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    small([text_file], out)
    with pytest.raises(InputError, match="exists already"):
        small([text_file], out)
    assert small([text_file], out, validation=0.3, force=True).validation.documents > corpus.validation.documents
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="not a corpus, so --force does not replace it"):
        small([text_file], tmp_path / "mine", force=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine", "out"]


@pytest.mark.parametrize("out", [".", "", "..", "../here", "loop", "loop/inside", "a\0b"])
def test_a_target_that_cannot_be(out: str, text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "loop").symlink_to("loop")
    monkeypatch.chdir(tmp_path / "here")
    if out in (".", "", "../here"):  # an empty folder may be given, though not the one we are in
        (tmp_path / "here" / "loop").unlink()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match=r"the working directory or one around it|cannot be written to"):
        small([text_file], out)  # pyrefly: ignore
    assert sorted(tmp_path.rglob("*")) == before
    assert Path.cwd() == tmp_path / "here"


def test_folders_made_for_a_build_that_fails_go_again(text_file: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="larger than this text allows"):
        small([text_file], tmp_path / "new" / "folders" / "out", vocabulary=100_000)
    assert list(tmp_path.iterdir()) == []


def test_leftovers_of_killed_builds_go_with_the_next(text_file: Path, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    hosts = {"here": socket.gethostname(), "elsewhere": "another host", "nowhere": None}
    for name, host in hosts.items():
        for suffix in ("part", "old.part"):
            left = tmp_path / f".{name}.{ended.pid}.{suffix}"
            left.mkdir()
            (left / "train.index").touch()
            if host:
                (left / ".host").write_text(host)
    alive, other = tmp_path / f".here.{os.getppid()}.part", tmp_path / f".else.{ended.pid}.part"
    for stays in (alive, other):
        stays.mkdir()
    for name in hosts:
        small([text_file], tmp_path / name)
    left = {path for path in tmp_path.iterdir() if path.name.startswith(".")}
    assert left == {alive, other, *tmp_path.glob(".elsewhere*part")}
    assert len(left) == 4
    assert not list(tmp_path.glob("[a-z]*/.host"))


def test_what_was_replaced_stays_until_something_is_in_its_place(text_file: Path, tmp_path: Path) -> None:
    """A build may be killed between the two renames of --force."""
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    out, old = tmp_path / "out", tmp_path / f".out.{ended.pid}.old.part"
    small([text_file], out)
    out.rename(old)
    with pytest.raises(InputError):
        small([text_file], out, vocabulary=100_000)
    assert list(tmp_path.iterdir()) == [old]
    small([text_file], out)
    assert list(tmp_path.iterdir()) == [out]


def test_a_number_of_a_process_may_come_again(text_file: Path, tmp_path: Path) -> None:
    """In a container the build may be process 1, killed or not."""
    (tmp_path / f".out.{os.getpid()}.part").mkdir()
    small([text_file], tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_full_disk_leaves_nothing(corpus: Corpus, text_file: Path, tmp_path: Path) -> None:
    """A bound on the size of a file fails a write as a full disk does."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, limits[1]))
    try:
        with pytest.raises(InputError, match=r"out: cannot be written \(File too large\)"):
            small([text_file], tmp_path / "out", tokenizer=corpus.path / "tokenizer.model")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


PROGRAM = """
import sys
from routelaw.corpus import build_corpus, fragments, encode
if __name__ == "__main__":
    fragments.CHUNK_BYTES = 20_000
    print("begun", flush=True)
    build_corpus(sys.argv[1:2], sys.argv[2], vocabulary=400, validation=0.1, workers=2)
    print("done", flush=True)
"""


@pytest.mark.long
def test_a_killed_build_is_no_corpus(tmp_path: Path) -> None:
    """Killed at random instants, workers included: what is left does not open, and the next build succeeds."""
    source = write_documents(make_documents(300, 300), tmp_path / "text.txt")
    program = tmp_path / "build.py"
    program.write_text(PROGRAM)
    begin = time.monotonic()
    subprocess.run([sys.executable, program, source, tmp_path / "whole"], check=True, capture_output=True)
    duration = time.monotonic() - begin
    draw, killed = random.Random(1), 0
    for attempt in range(4):
        out = tmp_path / str(attempt) / "out"
        process = subprocess.Popen(
            [sys.executable, program, source, out], stdout=subprocess.PIPE, start_new_session=True
        )
        assert process.stdout
        process.stdout.readline()
        time.sleep(draw.uniform(0, 0.7 * duration))
        process.kill()
        finished = b"done" in process.communicate()[0]
        killed += not finished
        for left in (tmp_path / str(attempt)).glob("*"):
            if left == out:
                assert open_corpus(left, verify=True).id == open_corpus(tmp_path / "whole").id
            else:
                with pytest.raises(InputError, match="unfinished build"):
                    open_corpus(left)
        _wait_for_group(process.pid)
    assert killed >= 1


LARGE_MODEL = Path(__file__).parents[2] / "experiments" / "miniature" / "data" / "tokenizer.model"
FROM_NOWHERE = """
import sys
from routelaw.corpus import build_corpus, fragments
fragments.CHUNK_BYTES = 20_000
build_corpus(sys.argv[1:2], sys.argv[2], tokenizer=sys.argv[3], validation=0.1, workers=2)
"""


def test_a_script_that_workers_cannot_load_is_told_so(tmp_path: Path) -> None:
    """Such as one from standard input. It used to hang where the tokenizer was larger than a pipe's buffer."""
    assert LARGE_MODEL.stat().st_size > 1 << 16
    source = write_documents(make_documents(300, 300), tmp_path / "text.txt")
    command = [sys.executable, "-", source, tmp_path / "out", LARGE_MODEL]
    ended = subprocess.run(command, input=FROM_NOWHERE, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 1
    assert "comes from standard input): try --workers 1." in ended.stderr


def _wait_for_group(group: int) -> None:
    """Workers of a killed build leave by themselves."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    os.killpg(group, signal.SIGKILL)
    raise AssertionError("workers outlived their parent")


def test_the_python_library_holds_out_more_than_a_handful(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is some hundred files: the usual share would hold out two or three, and a loss on these says little."""
    library = tmp_path / "lib"
    library.mkdir()
    for number in range(400):
        (library / f"module_{number}.py").write_text(f'"""Module {number}."""\nvalue = {number}\n')
    monkeypatch.setattr(sources.sysconfig, "get_paths", lambda: {"stdlib": str(library)})
    model = tmp_path / "tokenizer.model"
    model.write_bytes(tokenizer.model)
    texts = write_documents([f"text {n}" for n in range(400)], tmp_path / "texts.txt")
    library_corpus = build_corpus(["python"], tmp_path / "library", tokenizer=model, workers=1)
    usual_corpus = build_corpus([texts], tmp_path / "usual", tokenizer=model, workers=1)
    assert 10 <= library_corpus.validation.documents <= 40
    assert 1 <= usual_corpus.validation.documents <= 8
