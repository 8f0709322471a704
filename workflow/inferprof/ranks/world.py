"""How a case is divided over ranks: the option `parallel` of a variant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from inferprof.allowed import Allowed, check, whole
from inferprof.case import PARALLEL, Shape, Variant
from inferprof.errors import UserError
from inferprof.machine.hardware import Machine

KINDS: Final = ("tensor", "sequence", "pipeline", "data")
"""Each matrix product divided; also what lies between them, by tokens; blocks one after the other; the batch."""
MOST: Final = 64
RANKS: Final = whole(1, MOST)
NOT_WITH: Final = "graphs"


@dataclass(frozen=True)
class World:
    """`{tensor: 2}`: how the work is divided, and over how many ranks."""

    kind: str
    size: int

    @classmethod
    def of(cls, variant: Variant) -> World | None:
        """What a variant asks for; None where it does not ask. Raises UserError for what is no such thing."""
        if PARALLEL not in variant.options:
            return None
        given: Any = variant.options[PARALLEL]
        if NOT_WITH in variant.options:
            raise UserError(f"variant {variant.name}: {NOT_WITH}: is measured in one process; leave {PARALLEL}: out")
        check(f"variant {variant.name}", {PARALLEL: given}, {PARALLEL: WORLDS})
        return cls(*next(iter(given.items())))

    def hosts(self, machine: Machine) -> int:
        """How many hosts it needs: a host without a GPU counts as one."""
        return min(machine.hosts, -(-self.size // max(1, machine.gpus)))

    def __str__(self) -> str:
        return f"{{{self.kind}: {self.size}}}"


def _divides(given: Any) -> bool:
    if not isinstance(given, dict) or len(given) != 1:
        return False
    ((kind, size),) = given.items()
    return kind in KINDS and RANKS.fits(size)


WORLDS: Final = Allowed(
    _divides,
    f"one of {', '.join(KINDS)} with the number of ranks, {RANKS.words}; write it as {PARALLEL}: {{tensor: 2}}",
)


def refuses(variant: Variant, shape: Shape, machine: Machine) -> str | None:
    """Why a machine cannot run a case on its ranks; None where it can, or where one process is asked for."""
    world = World.of(variant)
    if world is None:
        return None
    if machine.gpu is not None and (there := machine.gpus * machine.hosts) < world.size:
        return f"{PARALLEL}: {world} needs {world.size} GPUs: this machine has {there}"
    if world.size % (hosts := world.hosts(machine)):
        return f"{PARALLEL}: {world}: its ranks can't be spread evenly over {hosts} hosts"
    if world.kind == "data" and shape.batch % world.size:
        return f"{PARALLEL}: {world}: a batch of {shape.batch} can't be divided by {world.size}"
    return None
