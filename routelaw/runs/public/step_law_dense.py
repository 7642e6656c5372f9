"""The dense models of Step-Law (Li et al. 2025), searched over learning rate and batch size."""

from routelaw.runs.public import PublicTable
from routelaw.runs.public.step_law import ASSUMED, SHARED, dense

TABLE = PublicTable(
    name="step-law-dense",
    title="the dense models of Step-Law (Li et al. 2025)",
    url="",
    sha256="",
    license="none stated",
    file_name="dense_lr_bs_loss.csv",
    header=SHARED,
    runs=dense,
    assumed=ASSUMED,
)
