"""Run as a program under Triton's interpreter: both products, in float32, against loops; a difference is an error."""

from __future__ import annotations

import sys

import pytest
import torch
from test_few_rows import LOADS, problem, wanted_gradient, wanted_product

from routelaw.kernels import few_rows_triton
from routelaw.kernels.few_rows_triton import rows_product, weight_gradient


def main(load: str) -> None:
    few_rows_triton.TILE, few_rows_triton.STEP, few_rows_triton.STEP_OF_ROWS = 16, 8, 4
    x_ND, weight_EDF, y_NF, offsets_E = problem(LOADS[load], 32, 48, torch.float32)
    written = int(offsets_E[-1])
    apart_ND, apart_E = (torch.stack([table, table], -1)[..., 0] for table in (x_ND, offsets_E))  # with gaps between
    some_EDF = torch.cat([weight_EDF, weight_EDF], 2)[:, :, : weight_EDF.shape[2]]
    for a, weight in ((x_ND, weight_EDF), (y_NF, weight_EDF.transpose(1, 2)), (apart_ND, some_EDF)):
        torch.testing.assert_close(
            rows_product(a, weight, apart_E)[:written],
            wanted_product(a, weight, offsets_E).float(),
            rtol=1e-5,
            atol=1e-5,
        )
    torch.testing.assert_close(
        weight_gradient(apart_ND, y_NF, apart_E), wanted_gradient(x_ND, y_NF, offsets_E).float(), rtol=1e-5, atol=1e-5
    )
    with pytest.raises(ValueError, match="multiples"):  # the last columns would not be written
        rows_product(x_ND, weight_EDF[:, :, 1:], offsets_E)


if __name__ == "__main__":
    main(sys.argv[1])
