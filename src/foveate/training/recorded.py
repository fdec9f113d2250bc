"""Recorded: a training step whose work on a GPU is recorded once, as a CUDA graph, and replayed from then on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

EAGER = 3  # real steps before the recording, in which libraries choose their kernels and take their memory


class RecordError(ValueError):
    """A training step cannot be recorded."""


class NothingToRecord(UserWarning):
    """A training step was to be recorded on a machine without a GPU."""


class Recorded:
    """A training step, forward and backward, without Python between its kernels.

    The first steps run as ever. The next is recorded and replayed, and all after it are replayed, each on a copy of its
    batch. Nothing in the step may wait for the GPU or depend on numbers that only Python knows, and forward hooks run
    when it is recorded, not when it is replayed. A batch of another shape runs as ever.

    Args:
        step: tensors in, a loss and what is to be known of the step out.
        parameters: what learns.
    """

    def __init__(self, step: Callable[..., tuple[Tensor, Tensor]], parameters: Sequence[nn.Parameter]) -> None:
        self.step, self.parameters = step, [p for p in parameters if p.requires_grad]
        self.count = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs: list[Tensor] = []
        self.outputs: tuple[Tensor, ...] = ()
        self.gradients: list[Tensor | None] = []

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """What the step returns, and its gradients in the parameters in the place of those that were there."""
        if self.graph is not None and any(a.shape != b.shape for a, b in zip(inputs, self.inputs, strict=True)):
            return self._as_ever(inputs)
        self.count += 1
        if self.count <= EAGER:
            return self._aside(inputs)
        if self.graph is None:
            self._record(inputs)
        for static, given in zip(self.inputs, inputs, strict=True):
            static.copy_(given, non_blocking=True)
        assert self.graph is not None
        self.graph.replay()
        for parameter, gradient in zip(self.parameters, self.gradients, strict=True):
            parameter.grad = gradient
        loss, values = (output.clone() for output in self.outputs)  # the next step writes over them
        return loss, values

    def _as_ever(self, inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        for parameter in self.parameters:
            parameter.grad = None
        loss, values = self.step(*inputs)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach(), values.detach()

    def _aside(self, inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """On a stream of its own, as recordings are."""
        stream, own = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        own.wait_stream(stream)
        with torch.cuda.stream(own):
            outputs = self._as_ever(inputs)
        stream.wait_stream(own)
        return outputs

    def _record(self, inputs: Sequence[Tensor]) -> None:
        self.inputs = [given.clone() for given in inputs]
        for parameter in self.parameters:
            parameter.grad = None  # so that the recording makes gradients, and does not add to those there are
        graph = torch.cuda.CUDAGraph()
        caches = torch.is_autocast_cache_enabled()
        torch.set_autocast_cache_enabled(False)  # weights in half precision are made in the recording, not before it
        try:
            # of this thread: one that pins the next batch in memory may go on meanwhile
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                loss, values = self.step(*self.inputs)
                loss.backward()  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            reason = str(error.__context__ or error).partition("\n")[0]  # ending a recording that failed fails too
            raise RecordError(
                f"this training step cannot be recorded ({reason}); something in it waits for the GPU: "
                "train it with --model.record false"
            ) from error
        finally:
            torch.set_autocast_cache_enabled(caches)
        self.graph, self.outputs = graph, (loss.detach(), values.detach())
        self.gradients = [parameter.grad for parameter in self.parameters]
