"""A sweep on a Ray cluster: every run is a task that Ray places by its need of CPUs and GPUs; the processes of a run
that takes several are on as many nodes as it needs.

The store lies where all nodes see it. A run whose worker or node is lost is given out again and continues from its
last checkpoint; between hosts it is taken over once its lease has gone cold (runs/claims.py).

The processes of one run are placed all at once or not at all. They meet at a store of the task that launches them. A
process ends with the Ray worker that started it, and that with the task: whichever node is lost, nobody stays behind.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from routelaw.distributed.launch import GRACE, POLL, Launch, LaunchResult, RankProcess, rendezvous_address
from routelaw.distributed.ranks import Rank
from routelaw.errors import LOST_CONTACT, InputError
from routelaw.runs.store import Store
from routelaw.sweeps.progress import Event, Started, Tick
from routelaw.sweeps.task import FAILED, STOPPED, Outcome, Schedule, Task, reason_of

TICK = 0.5
AHEAD = 2
"""Tasks handed to Ray per slot of the cluster: enough that no slot waits, few enough to stop soon."""


def run_on_ray(
    tasks: Sequence[Task], store: Store, *, address: str | None, cpus: float, gpus: float
) -> Iterator[Event]:
    """Carry out the tasks on the cluster at `address`; without one, on a running cluster or on a new one of this
    machine. Stop iterating to stop the sweep."""
    ray = _connected(address)
    try:
        slots = _slots(ray, cpus, gpus, max((task.world for task in tasks), default=1))
        remote = ray.remote(max_retries=0)(_carry_out)

        def given_out(task: Task, stop: Path) -> Any:
            several = task.world > 1  # then this task only launches its processes, which Ray places themselves
            placed = remote.options(num_cpus=0 if several else cpus, num_gpus=0 if several else gpus)
            return placed.remote(asdict(task), str(stop), cpus, gpus)

        yield from _run(ray, given_out, Schedule(tasks, store), AHEAD * slots, store.path / f".stop.{uuid.uuid4().hex}")
    finally:
        ray.shutdown()


def _run(
    ray: Any, given_out: Callable[[Task, Path], Any], schedule: Schedule, most: int, stop: Path
) -> Iterator[Event]:
    """`stop` is a file that, once it is there, tells this sweep's runs on any node to leave a checkpoint and end."""
    given: dict[Any, Task] = {}
    try:
        while not schedule.over:
            while len(given) < most and (task := schedule.next_task()):
                given[given_out(task, stop)] = task
                yield Started(task.run_id)
            done, _ = ray.wait(list(given), timeout=TICK) if given else ([], [])
            for reference in done:
                task = given.pop(reference)
                yield from _settled(ray, reference, task, schedule)
            yield Tick()
    finally:
        if given:
            stop.touch()
            _, late = ray.wait(list(given), num_returns=len(given), timeout=GRACE)
            for reference in late:
                ray.cancel(reference)
            stop.unlink(missing_ok=True)


def _settled(ray: Any, reference: Any, task: Task, schedule: Schedule) -> Iterator[Event]:
    try:
        outcome = Outcome(**ray.get(reference))
    except ray.exceptions.RayTaskError as error:  # before the run began: an import that fails on that node, say
        outcome = Outcome(task.run_id, FAILED, f"on its node: {reason_of(error.cause)}")
    except ray.exceptions.RayError as error:
        yield from schedule.settle_death(task.run_id, f"its worker or node was lost ({type(error).__name__})")
        return
    yield from schedule.settle(outcome)


def _carry_out(task: dict[str, Any], stop: str, cpus: float, gpus: float) -> dict[str, Any]:
    """On a node, in a worker of Ray's."""
    from routelaw.kernels.cpu_bfloat16 import apply_remembered
    from routelaw.sweeps.task import Task, carry_out

    apply_remembered()
    if Path(stop).exists():  # it stood in the queue when the sweep was stopped
        return asdict(Outcome(task["run_id"], STOPPED))
    return asdict(carry_out(Task(**task), Path(stop).exists, on_cluster(cpus, gpus, Path(stop).parent)))


def _connected(address: str | None) -> Any:
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise InputError("Ray is not installed: pip install 'routelaw[ray]'.") from None
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        first = str(error).strip().partition("\n")[0]
        raise InputError(f"no Ray cluster answers at {address or 'this machine'} ({first}).") from None
    return ray


def _slots(ray: Any, cpus: float, gpus: float, processes: int) -> int:
    """How many runs the cluster can hold at a time; none is an error now, not a wait for ever."""
    needs = [(kind, required) for kind, required in (("CPU", cpus), ("GPU", gpus)) if required]
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    # A process is on one node, so that what is left over on several does not add up.
    available = sum(int(min((node.get(kind, 0.0) / required for kind, required in needs), default=1)) for node in nodes)
    if available < processes:
        has = ray.cluster_resources()
        each = "a run needs" if processes == 1 else f"each of a run's {processes} processes needs"
        where = "no node of the cluster has them" if available == 0 else f"the cluster has room for {available}"
        raise InputError(
            f"{each} {cpus:g} CPUs and {gpus:g} GPUs, and {where} "
            f"(in all there are {has.get('CPU', 0):g} and {has.get('GPU', 0):g})."
        )
    return max(1, available // processes)


NODE_LOST = LOST_CONTACT


def on_cluster(cpus: float, gpus: float, folder: Path) -> Launch:
    """A launcher that gives every process so many CPUs and GPUs. When they are to stop it leaves a sign in `folder`,
    which all nodes see."""

    def launch(
        command: Sequence[str],
        world: int,
        *,
        stdin: str = "",
        keep_stderr: bool = True,
        threads: int = 0,
        stop: Callable[[], bool] = lambda: False,
    ) -> LaunchResult:
        import ray
        from ray.util.placement_group import placement_group, remove_placement_group

        available = {"CPU": cpus} | ({"GPU": gpus} if gpus else {})
        group = placement_group([available] * world, strategy="PACK")
        sign = folder / f".stop.{uuid.uuid4().hex}"
        try:
            while not group.wait(timeout_seconds=TICK):
                if stop():
                    return LaunchResult(world, 0, 0)
            host = ray.util.get_node_ip_address()
            with rendezvous_address(host) as port:
                given = {"command": list(command), "stdin": stdin, "threads": threads, "sign": str(sign)}
                given |= {"host": host, "port": port, "world": world}
                return _followed(ray, _started(ray, group, available, given), sign, stop)
        finally:
            sign.unlink(missing_ok=True)
            remove_placement_group(group)

    return launch


def _started(ray: Any, group: Any, available: Mapping[str, float], given: Mapping[str, Any]) -> list[Any]:
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    references = []
    for number in range(given["world"]):
        place = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=number)
        remote = ray.remote(max_retries=0)(_member).options(
            num_cpus=available["CPU"], num_gpus=available.get("GPU", 0), scheduling_strategy=place
        )
        references.append(remote.remote(number, dict(given)))
    return references


def _followed(ray: Any, references: list[Any], sign: Path, stop: Callable[[], bool]) -> LaunchResult:
    world, left, asked, stderr = len(references), list(references), 0.0, ""
    try:
        while left:
            done, left = ray.wait(left, timeout=TICK)
            for reference in done:
                rank = references.index(reference)
                try:
                    code, written = ray.get(reference)
                except ray.exceptions.RayError as error:
                    lost = f"error: the node or worker of process {rank} of {world} was lost ({type(error).__name__})"
                    return LaunchResult(world, rank, NODE_LOST, lost)
                if code:
                    return LaunchResult(world, rank, code, written)
                stderr = written if rank == 0 else stderr
            if not asked and stop():
                asked = time.monotonic()
                sign.touch()
            if asked and time.monotonic() - asked > GRACE:
                break
        return LaunchResult(world, 0, 0, stderr)
    finally:
        for reference in left:
            ray.cancel(reference, force=True)


def _member(number: int, given: dict[str, Any]) -> tuple[int, str]:
    """On its node: how the process ended, and the end of its standard error. Ray shows it its own GPUs alone."""
    rank, rendezvous = Rank(number, given["world"], 0), (given["host"], given["port"])
    member = RankProcess(given["command"], rank, rendezvous, given["stdin"], True, given["threads"])
    asked = False
    try:
        while (code := member.code) is None:
            if not asked and Path(given["sign"]).exists():
                asked = True
                member.terminate()
            time.sleep(POLL)
        return code, member.stderr
    finally:
        member.close()
