"""Every model of one router against experts, total parameters, and parameters per FLOP."""

from __future__ import annotations

from functools import partial

from matplotlib.figure import Figure as Picture

from routelaw.figures import loss_curves, selection, style
from routelaw.figures.figure import Figure
from routelaw.runs.table import RunTable


def draw(table: RunTable, router: str) -> Picture:
    points = selection.points_of(table, router)
    selection.with_columns(selection.several_experts(points), "total_params", "flops_per_token")
    colours = loss_curves.size_colours(points)
    picture, axes = style.panels(3, width=3.3, height=3.4, sharey=True)
    for panel, x_of in zip(axes, (loss_curves.experts, loss_curves.total_params, loss_curves.utilisation), strict=True):
        loss_curves.draw_points(panel, points, colours, x_of, joined=True)
    loss_curves.loss_axes(*axes, target=points.target)
    loss_curves.experts_axis(axes[0])
    loss_curves.params_axis(axes[1], "total parameters P")
    loss_curves.utilisation_axis(axes[2])
    axes[0].set_title(style.router_label(router))
    for panel in axes:
        panel.label_outer()
    loss_curves.legend_below(picture, colours, {}, mark=style.router_mark(router))
    return picture


def caption(name: str) -> str:
    return (
        f"Loss of all {name} models of the main sweep (usual K and R) against the number of experts, the total number "
        "of parameters, and the parameters held per FLOP spent on a token; lines join the runs of one size. Raw "
        "losses, no fit: a bend at either end of a curve is the saturation that the law models. Dense runs stand at "
        "E = 1, P = N and the B of their own F (below ½, since F counts attention and logits besides 2N); seeds are "
        "averaged. Departs from print in the unit of B, per FLOP instead of per TeraFLOP, as the (F, B) law uses it."
    )


ON_RELEASE = (
    "The curves bend at both ends. At equal P the larger base model has the lower loss throughout, at a higher cost "
    "per token. K = 1, R = 0.5."
)

FIGURES = tuple(
    Figure(
        name=f"three_panels_{router.replace('-', '_')}",
        title=f"{style.router_label(router)}: loss against experts, parameters and utilisation",
        caption=caption(style.router_label(router)),
        draw=partial(draw, router=router),
        paper=f"Appendix figure (experts_and_params{number})",
        on_release=ON_RELEASE,
    )
    for number, router in enumerate(("s-base", "rl-r", "hash"), start=1)
)
