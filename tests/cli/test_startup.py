"""Help is instant: nothing heavy is imported before a command runs."""

import subprocess
import sys

import pytest

HEAVY = ("numpy", "pandas", "matplotlib", "scipy", "pyarrow", "torch", "plotly")
PROGRAM = """
import sys
sys.argv = {argv!r}
try:
    {statement}
except SystemExit as end:
    assert not end.code, end.code
print(sorted(set({heavy!r}) & set(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("argv", "statement", "printed"),
    [
        (["routelaw", "--help"], "from routelaw.cli.main import main; main()", "compare"),
        (["routelaw", "fit", "--help"], "from routelaw.cli.main import main; main()", "--law"),
        ([], "import routelaw; print(routelaw.__version__)", "."),
    ],
    ids=["routelaw --help", "routelaw fit --help", "import routelaw"],
)
def test_nothing_heavy_is_imported(argv: list[str], statement: str, printed: str) -> None:
    program = PROGRAM.format(argv=argv, statement=statement, heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (0, "[]")
    assert printed in done.stdout
