"""The arithmetic of a planned layout, line by line, so that a reader can check it with a pocket calculator."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from routelaw.costs.activations import Pass
from routelaw.costs.layouts import LayoutPlan, LayoutRanking
from routelaw.costs.memory import CUDA_CONTEXT, ITEMSIZE
from routelaw.costs.parameters import ParameterShape, Shard, hash_tables, model_parameters, sharded
from routelaw.costs.step_time import ASSIGNMENT_SECONDS, FORWARD_AND_BACKWARD, ON_CPU, ON_GPU
from routelaw.formatting import byte_size
from routelaw.specs.layout import Layout
from routelaw.specs.run import RunSpec


@dataclass(frozen=True)
class ArithmeticLine:
    what: str
    formula: str
    result: str


def arithmetic(plan: LayoutRanking, chosen: LayoutPlan | None = None) -> dict[str, list[ArithmeticLine]]:
    """By heading; of the best layout unless another one is given."""
    chosen = chosen or plan.best
    return {
        "numbers that one process computes with": _numbers(plan.spec, chosen.layout),
        "memory of the process that has most": _memory(plan, chosen),
        "bytes that one process sends in a step": _sent(chosen),
        "time of a step": _time(plan, chosen),
    }


def _numbers(spec: RunSpec, layout: Layout) -> list[ArithmeticLine]:
    shape, router, routed = spec.model.architecture, spec.router, len(spec.routed_blocks)
    d, inner, blocks = shape.d_model, shape.heads * shape.kv_size, shape.blocks
    by_tensor = f"/{layout.tensor}" if layout.tensor > 1 else ""
    projections = 5 if spec.model.positions == "xl" else 4
    experts, rest = (sum(p.elements(layout) for p in _parameters(spec, expert)) for expert in (True, False))
    lines = []
    if routed:
        local = f"{router.experts}/{layout.expert}" if layout.expert > 1 else f"{router.experts}"
        stacked = f" × {router.ffws_per_expert}" if router.ffws_per_expert > 1 else ""
        norms = f" + norms of {2 * (router.ffws_per_expert - 1)}·{d}" if stacked else ""
        formula = f"{routed} blocks × {local} experts × (8·{d}²{by_tensor}{stacked}{norms})"
        lines.append(ArithmeticLine("experts", formula, f"{experts:,}"))
    formula = f"{spec.model.vocabulary}·{d} + {blocks} × ({projections}·{d}·{inner}{by_tensor} + 4·{d}) + 2·{d}"
    formula += f" + {blocks - routed} dense FFWs × 8·{d}²{by_tensor}" if blocks > routed else ""
    if routed and router.name != "hash":
        layers, hidden = router.value_layers, d // 8
        deeper = f" + {layers - 1}·{hidden}²" if layers > 1 else ""
        baseline = f" + {hidden}·{d}{deeper} + {hidden}" if layers else ""
        routers = 1 if router.shared_decisions else routed
        formula += f" + {routers} routers × ({router.experts}·{d} + {router.experts}{baseline})"
    return [*lines, ArithmeticLine("all else" if routed else "all", formula, f"{rest:,}")]


def _of_loss(forward: Pass) -> str:
    """Logits pass by; the gradients of what they were made of stay."""
    vocabulary, width = forward.spec.model.vocabulary, forward.spec.model.architecture.d_model
    hidden = f"{forward.tokens:,} tokens × {width} × {forward.itemsize} B"
    return f"{hidden} + {vocabulary:,} × {width} × {forward.fp32_itemsize} B"


def _parameters(spec: RunSpec, expert: bool) -> list[ParameterShape]:
    return [p for part in model_parameters(spec) for p in part if p.expert == expert]


def _memory(plan: LayoutRanking, chosen: LayoutPlan) -> list[ArithmeticLine]:
    spec, layout, memory = plan.spec, chosen.layout, chosen.memory
    number = ITEMSIZE[plan.precision]
    own = spec.train.batch * spec.model.sequence_length // (layout.batch * chosen.micro_batches)
    forward = Pass(spec, own, number, plan.cluster.device.gpu, layout)
    blocks = " + ".join(f"{count} blocks × {size(each)}" for each, count in sorted(Counter(forward.blocks).items()))
    lines = [
        *_held(plan, chosen),
        *_kept(forward),
        ArithmeticLine("activations", f"{blocks} + {size(forward.last)} for the last norm", size(memory.activations)),
        ArithmeticLine("for the loss", _of_loss(forward), size(memory.logits)),
    ]
    if memory.exchange:
        rows = f"2 × {own:,} tokens × K = {spec.router.k} × {spec.model.architecture.d_model} × {number} B"
        lines.append(ArithmeticLine("all-to-all buffers", rows, size(memory.exchange)))
    there = [f"{name} {size(part)}" for name, part in memory.peak.parts.items() if part]
    lines.append(ArithmeticLine(f"most at once: {memory.peak.name}", " + ".join(there), size(memory.peak.total)))
    always = [size(memory.peak.total), f"masters {size(memory.masters)}", f"optimiser {size(memory.optimizer)}"]
    if tables := hash_tables(spec):
        always.append(f"tables {size(tables)}")
    always.append(f"CUDA {size(CUDA_CONTEXT)}")
    return [*lines, ArithmeticLine("in all", " + ".join(always), f"{size(chosen.needed)} of {size(chosen.available)}")]


def _kept(forward: Pass) -> list[ArithmeticLine]:
    """By the letters of costs/activations.py."""
    spec, shape, tensor = forward.spec, forward.spec.model.architecture, forward.layout.tensor
    letters = f"T = {forward.tokens:,}, S = {spec.model.sequence_length:,}, d = {shape.d_model:,}, "
    letters += f"I = {shape.heads * shape.kv_size // tensor:,}, H = {shape.heads // tensor}, "
    letters += f"E = {spec.router.experts}, K = {spec.router.k}, t = {tensor}, "
    letters += f"b = {forward.itemsize}, w = {forward.fp32_itemsize}"
    parts = {"attention": forward.attention_parts}
    if len(spec.routed_blocks) < shape.blocks:
        parts["dense FFW"] = forward.ffw_parts
    if spec.routed_blocks:
        parts["experts and router"] = [*forward.expert_parts, *forward.router_parts]
    lines = [ArithmeticLine("kept of a block, with", letters, "")]
    for what, kept in parts.items():
        formula = " + ".join(f"{part.name} {part.formula} = {size(part.size)}" for part in kept if part.size)
        lines.append(ArithmeticLine(what, formula, size(sum(part.size for part in kept))))
    return lines


def _held(plan: LayoutRanking, chosen: LayoutPlan) -> list[ArithmeticLine]:
    spec, layout, memory = plan.spec, chosen.layout, chosen.memory
    number = ITEMSIZE[plan.precision]
    wide = max(number, 4)
    if layout.batch == 1:
        numbers = sum(p.elements(layout) for part in model_parameters(spec) for p in part)
        masters = [ArithmeticLine("masters", f"{numbers:,} × {wide} B", size(memory.masters))] if memory.masters else []
        return [
            ArithmeticLine("parameters", f"{numbers:,} × {number} B", size(memory.parameters - hash_tables(spec))),
            *masters,
            ArithmeticLine("optimiser", f"2 moments × {numbers:,} × {wide} B", size(memory.optimizer)),
        ]
    model = sharded(model_parameters(spec), layout)
    experts = [s for block in model.experts for s in block]
    rest = [s for part in model.rest for s in part]
    parts = [(f"experts over {layout.data}", experts)] if experts else []
    parts.append((f"{'all else' if experts else 'all'} over {layout.batch}", rest))
    gathered = " + ".join(_padded(f"{sum(s.gathered for s in shards):,}", shards) for _, shards in parts)
    padded = " + ".join(f"{sum(s.padded for s in shards):,} of {name}" for name, shards in parts)
    own = sum(s.own for s in model.all)
    return [
        ArithmeticLine("parameters", f"({gathered}) × {number} B", size(memory.parameters - hash_tables(spec))),
        ArithmeticLine("masters", f"({padded}) × {wide} B", size(memory.masters)),
        ArithmeticLine("optimiser", f"2 moments × {own:,} × {wide} B", size(memory.optimizer)),
    ]


def _padded(words: str, shards: list[Shard]) -> str:
    padding = sum(s.gathered - s.whole for s in shards)
    return f"{words} (padding {padding:,})" if padding else words


def _sent(chosen: LayoutPlan) -> list[ArithmeticLine]:
    lines = []
    for c in chosen.crossings:
        flow = c.flow
        where = "within a node" if c.inside == flow.members else f"{c.inside} in a node"
        what = f"{flow.what}, {flow.group} of {flow.members}, {where}"
        formula = f"{flow.times} × {flow.share.numerator}/{flow.share.denominator} × {size(float(flow.size))}"
        rate = f"{size(flow.sent)}: {seconds(c.seconds)} at {size(c.bandwidth)}/s"
        lines.append(ArithmeticLine(what, formula, rate))
    return lines


def _time(plan: LayoutRanking, chosen: LayoutPlan) -> list[ArithmeticLine]:
    step, device = chosen.compute, plan.cluster.device
    passes = ON_GPU if device.gpu else ON_CPU
    spec, routed = plan.spec, len(plan.spec.routed_blocks)
    rates = [f"{device.flops(width) / 1e12:.4g} TFLOP/s" for width in (step.split_width, step.width)]
    products = (
        f"{FORWARD_AND_BACKWARD} × {step.tokens:,} tokens × ({step.split_flops / 1e9:.4g} GFLOP at {rates[0]} "
        f"(width {step.split_width}) + {step.whole_flops / 1e9:.4g} GFLOP at {rates[1]})"
    )
    memory = f"({passes.kept} × {size(step.kept)} + {passes.scores} × {size(step.scores)}) / {size(device.bandwidth)}/s"
    each = f"{seconds(passes.step_seconds)} + {spec.model.architecture.blocks} × {seconds(passes.block_seconds)}"
    each += f" + {routed} × {seconds(passes.routed_seconds)}" if routed else ""
    if routed and spec.router.name == "s-base":
        routers = 1 if spec.router.shared_decisions else routed
        each += f" + {routers} × {seconds(passes.sinkhorn_seconds)} for Sinkhorn"
    updating = f"{passes.updated} × {size(step.updated)} / {size(device.bandwidth)}/s"
    lines = [
        ArithmeticLine("products", products, seconds(step.products)),
        ArithmeticLine("moving activations and scores", memory, seconds(step.moving)),
        ArithmeticLine("the optimiser's numbers", updating, seconds(step.updating)),
        ArithmeticLine("handing out work", f"{chosen.micro_batches} × ({each})", seconds(step.handing_out)),
    ]
    if step.assigning:
        assigned = f"{step.tokens:,} tokens × {spec.router.experts} experts × {routed} × {ASSIGNMENT_SECONDS:g} s"
        lines.append(ArithmeticLine("exact assignment", assigned, seconds(step.assigning)))
    overlapped, waited, none = (seconds(t) for t in (chosen.overlapped, chosen.waited, chosen.without_overlap))
    hidden = f"the larger of computing {seconds(step.total)} and gathering and reducing experts {overlapped}"
    return [
        *lines,
        ArithmeticLine(
            "step", f"{hidden}, + the rest {waited}", f"{seconds(chosen.step_seconds)} ({none} if none overlaps)"
        ),
    ]


def size(count: float) -> str:
    return byte_size(count, digits=4)


def seconds(time: float) -> str:
    if time >= 1:
        return f"{time:.4g} s"
    return f"{1e3 * time:.4g} ms" if time >= 1e-3 or not time else f"{1e6 * time:.3f} µs"
