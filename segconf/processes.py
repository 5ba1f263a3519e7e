"""Process groups: which process owns which image, and collective operations."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from segconf.errors import SegconfError, TrainingError
from segconf.metrics.streaming import ConfidenceMetrics

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """This process among those that torchrun started."""

    rank: int = 0
    world: int = 1

    @property
    def is_first(self) -> bool:
        """True for the one process that writes files."""
        return self.rank == 0

    def own(self, count: int) -> slice:
        """The images of this process among `count`: the same for the whole run."""
        return slice(self.rank, count, self.world)

    def gather(self, values: Tensor) -> Tensor:
        """Rows of all processes, one after another; only the own ones carry a gradient.

        A loss of gathered values is the same on every process, and the sum of their gradients is
        that of one process with all the rows.
        """
        if self.world == 1:
            return values
        rows = torch.tensor([len(values)], device=values.device)
        counts = [torch.zeros_like(rows) for _ in range(self.world)]
        dist.all_gather(counts, rows)
        most = max(int(count) for count in counts)
        padding = values.new_zeros(most - len(values), *values.shape[1:])
        padded = torch.cat([values.detach(), padding]).contiguous()
        parts = [torch.empty_like(padded) for _ in range(self.world)]
        dist.all_gather(parts, padded)
        own = [part[: int(count)] for part, count in zip(parts, counts, strict=True)]
        own[self.rank] = values
        return torch.cat(own)

    def total(self, value: Tensor) -> Tensor:
        """Sum over the processes, without gradient."""
        if self.world > 1:
            value = value.clone()
            dist.all_reduce(value)
        return value

    def shared_total(self, value: Tensor) -> Tensor:
        """Sum over the processes, with the gradient of the own part.

        A loss of such sums is the same on every process, and the sum of their gradients is that of
        one process with all the parts.
        """
        own = value.detach()
        return value + (self.total(own) - own)

    def collect(self, value: T) -> list[T]:
        """The value of every process, on every process."""
        if self.world == 1:
            return [value]
        values = [value] * self.world
        dist.all_gather_object(values, value)
        return values

    def agree(self, value: T) -> T:
        """The value of the first process, on every process."""
        return self.collect(value)[0]

    def on_first(self, work: Callable[[], object]) -> None:
        """Do something on the first process while the others wait; where it fails, all fail."""
        if self.world == 1:
            work()
            return
        problem: SegconfError | None = None
        if self.is_first:
            try:
                work()
            except SegconfError as error:
                problem = error
        message = self.agree(str(problem) if problem is not None else None)
        if problem is not None:
            raise problem
        if message is not None:
            raise TrainingError(message)

    def synchronized(self, model: nn.Module) -> nn.Module:
        """The model with BatchNorm statistics of the whole batch, which only CUDA can do."""
        if self.world == 1 or next(model.parameters()).device.type != "cuda":
            return model
        converted: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
        return converted

    def share_buffers(self, model: nn.Module) -> None:
        """Give every process the BatchNorm statistics of the first: all validate the same model."""
        if self.world > 1:
            for buffer in model.buffers():
                dist.broadcast(buffer, src=0)

    def merge(self, metrics: ConfidenceMetrics) -> None:
        """Let every process hold the metrics of all images."""
        if self.world == 1:
            return
        for rank, state in enumerate(self.collect(metrics.state_dict())):
            if rank != self.rank:
                other = ConfidenceMetrics(num_classes=metrics.num_classes)
                other.load_state_dict(state)
                metrics.merge(other)


@contextmanager
def joined(device: torch.device) -> Iterator[ProcessGroup]:
    """Join the group that torchrun announces in the environment; alone otherwise."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield ProcessGroup()
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    with default_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"):
        yield ProcessGroup(dist.get_rank(), world)


@contextmanager
def default_group(backend: str, timeout: timedelta | None = None) -> Iterator[None]:
    """Join the default group of torch; at the end, no thread of it is left."""
    # These functions keep the group that exists at their import as a default argument, and DDP
    # imports them. A group that is kept keeps its threads, which may abort Python when it ends.
    import torch.distributed.nn.functional  # noqa: F401

    dist.init_process_group(backend, timeout=timeout)
    try:
        yield
    finally:
        dist.destroy_process_group()
