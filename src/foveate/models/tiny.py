"""A backbone small enough to train on a laptop while the kettle boils: what `foveate compare` uses on the scenes."""

from torch import Tensor, nn


class TinyCNN(nn.Module):
    """Five convolutions at strides 2, 2, 1, 2, 1, a global average, a linear classifier.

    A 64×64 image has an 8×8 map after `stages.3`, where an attention sees enough of an object to know it, and still
    where it is.

    >>> TinyCNN(classes=10)(torch.rand(2, 3, 64, 64)).shape
    torch.Size([2, 10])
    """

    def __init__(self, classes: int, widths: tuple[int, ...] = (16, 32, 64, 96, 96), channels: int = 3) -> None:
        super().__init__()
        strides = (2, 2, 1, 2, 1)
        self.stages = nn.Sequential(
            *(
                nn.Sequential(
                    nn.Conv2d(before, after, 3, stride, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()
                )
                for before, after, stride in zip((channels, *widths[:-1]), widths, strides, strict=True)
            )
        )
        self.global_pool = GlobalAverage()
        self.classifier = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, 3, H, W) to logits (B, classes)."""
        logits: Tensor = self.classifier(self.global_pool(self.stages(x)))
        return logits


class GlobalAverage(nn.Module):
    """The mean over the plane, as a layer, so that a pooling attention can take its place.

    >>> import torch
    >>> GlobalAverage()(torch.ones(2, 3, 4, 5)).shape
    torch.Size([2, 3])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, C, H, W) to vectors (B, C)."""
        return x.mean(dim=(2, 3))
