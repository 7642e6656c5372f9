"""Sweep and spec files that must be refused."""

from __future__ import annotations

from collections.abc import Iterator

from sandbox import SPEC, SWEEP


def _grid(*names: str) -> str:
    """A thousand values of each."""
    return SWEEP + "".join(f"train.{name} = {list(range(1, 1001))}\n" for name in names)


BAD_TOML: dict[str, str | bytes] = {
    "not TOML": "steps = = 3",
    "not text": b"\xff\xfe\x00",
    "NUL": b"a = 1\0",
    "empty": "",
    "an array at the top": "[[nonsense]]\na = 1",
    "deep": "a = " + "[" * 100_000,
    "deep tables": "[" + ".".join(["a"] * 500) + "]\nb = 1",
    "a key of many parts": ".".join("a" * 300_000) + " = 1",
    "a header of many parts": "[" + ".".join("a" * 300_000) + "]\nb = 1",
    "an enormous array": "a = [" + "1," * 20_000_000 + "]",
    "5,000 digits": "[train]\nsteps = " + "9" * 5000,
    "beyond 64 bits": "[train]\nsteps = " + "9" * 30,
    "NaN": "[train]\nlearning_rate = nan",
    "infinite": "[train]\nlearning_rate = inf",
    "a date": "[train]\nsteps = 1979-05-27",
    "a table for a number": "[train.steps]\na = 1",
    "a list for a number": "[train]\nsteps = [1]",
    "text for a number": '[train]\nsteps = "ten"',
    "truth for a number": "[train]\nsteps = true",
    "a number for text": "[router]\nname = 7",
    "an unknown table": "[trainer]\nsteps = 5",
    "an unknown key": "[train]\nstep = 5",
    "a corpus that is no text": "corpus = 7",
    "options as a list": '[router]\nname = "rl-r"\nexperts = 4\noptions = [1]',
    "options of options": '[router]\nname = "rl-r"\nexperts = 4\n[router.options.variant]\na = 1',
    "markup in a name": '[router]\nname = "[/red]"\nexperts = 4',
    "a name of control characters": '[router]\nname = "\\u001b[31mred"\nexperts = 4',
}
BAD_SWEEPS: dict[str, str] = {
    "a grid that is no table": SPEC + 'grid = 7\n',
    "a grid without values": SPEC + "[[grid]]\ntrain.seed = []\n",
    "a grid over nothing": SPEC + "[[grid]]\ntrain.nonsense = [1, 2]\n",
    "a grid over execution": SPEC + "[[grid]]\nexecution.threads = [1, 2]\n",
    "a grid of a million": _grid("seed", "batch"),
    "a grid of 10^18": _grid("seed", "batch", "steps", "warmup_steps", "clip", "weight_decay"),
    "many grids": SPEC + "".join(f"[[grid]]\ntrain.seed = {list(range(n, n + 3000))}\n" for n in range(0, 12000, 3000)),
    "a field twice": SWEEP + '"train.seed" = [1]\ntrain.seed = [2]\n',
    "a base that blocks": 'base = "/proc/kmsg"\n' + SWEEP,
    "a rule without a condition": SWEEP + "[[where]]\nset = { train.steps = 5 }\n",
    "a rule that sets nothing": SWEEP + "[[where]]\nrouter.name = \"hash\"\n",
    "a rule with an empty condition": SWEEP + "[[where]]\nrouter.name = []\nset = { train.steps = 5 }\n",
    "a base that is not there": 'base = "nowhere.toml"\n' + SWEEP,
    "a base that is a device": 'base = "/dev/zero"\n' + SWEEP,
    "a base that is a FIFO": 'base = "fifo"\n' + SWEEP,
    "a base that is itself": 'base = "bad.toml"\n' + SWEEP,
    "a base that is a folder": 'base = "corpus"\n' + SWEEP,
    "a base that is no text": "base = 7\n" + SWEEP,
    "a base with grids": 'base = "sweep.toml"\n' + SWEEP,
    "a run that cannot be": SWEEP.replace("steps = 6", "steps = 0"),
    "another text that is not there": SWEEP + '[evaluate_on]\na = "nowhere"\n',
    "another text without a path": SWEEP + "[evaluate_on]\na = 7\n",
    "two kinds of device": SWEEP.replace('device = "cpu"', 'device = "tpu"'),
    "a model beyond all memory": SWEEP.replace("d_model = 16", "d_model = 1000000"),
    "a text that is no corpus": SWEEP.replace('corpus = "corpus"', 'corpus = "store"'),
}  # fmt: skip


def bad_specs() -> Iterator[tuple[str, str, bytes]]:
    """What, the command line that reads it as {bad}, and its content."""
    for name, content in BAD_TOML.items():
        data = content if isinstance(content, bytes) else content.encode()
        yield f"spec: {name}", "train --spec {bad} --corpus {corpus} --out out", data
        yield f"sweep: {name}", "sweep {bad} --corpus {corpus} --store out", data
        yield f"layout: {name}", "plan layout --devices 8 --spec {bad}", data
    for name, content in BAD_SWEEPS.items():
        yield f"sweep: {name}", "sweep {bad} --store out", content.encode()
