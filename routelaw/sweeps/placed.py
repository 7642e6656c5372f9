"""The processes of one run on the nodes of a Ray cluster: each where Ray finds room for it, all at once or none.

They meet at a store of the task that launches them. A process ends with the Ray worker that started it, and that with
the task: whichever node is lost, nobody stays behind.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from routelaw.distributed.launch import GRACE, POLL, Launch, LaunchResult, Member, rendezvous_address
from routelaw.distributed.ranks import Rank
from routelaw.errors import LOST_CONTACT

TICK = 0.5
NODE_LOST = LOST_CONTACT


def on_cluster(cpus: float, gpus: float, folder: Path) -> Launch:
    """A launcher that gives every process so many CPUs and GPUs. When they are to stop it leaves a sign in `folder`,
    which all nodes see."""

    def launch(
        command: Sequence[str],
        world: int,
        *,
        told: bytes = b"",
        keep_words: bool = True,
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
                given = {"command": list(command), "told": told, "threads": threads, "sign": str(sign)}
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
    world, left, asked, said = len(references), list(references), 0.0, ""
    try:
        while left:
            done, left = ray.wait(left, timeout=TICK)
            for reference in done:
                rank = references.index(reference)
                try:
                    code, words = ray.get(reference)
                except ray.exceptions.RayError as error:
                    lost = f"error: the node or worker of process {rank} of {world} was lost ({type(error).__name__})"
                    return LaunchResult(world, rank, NODE_LOST, lost)
                if code:
                    return LaunchResult(world, rank, code, words)
                said = words if rank == 0 else said
            if not asked and stop():
                asked = time.monotonic()
                sign.touch()
            if asked and time.monotonic() - asked > GRACE:
                break
        return LaunchResult(world, 0, 0, said)
    finally:
        for reference in left:
            ray.cancel(reference, force=True)


def _member(number: int, given: dict[str, Any]) -> tuple[int, str]:
    """On its node: how the process ended, and what it said at the end. Ray shows it its own GPUs alone."""
    meeting = (given["host"], given["port"])
    member = Member(given["command"], Rank(number, given["world"], 0), meeting, given["told"], True, given["threads"])
    asked = False
    try:
        while (code := member.code) is None:
            if not asked and Path(given["sign"]).exists():
                asked = True
                member.ask_to_stop()
            time.sleep(POLL)
        return code, member.said
    finally:
        member.end()
