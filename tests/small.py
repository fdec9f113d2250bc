"""A small convolutional network that tests attach to: fast, with batch norms, containers and a layer of every kind."""

import torch
from torch import Tensor, nn


class SmallCNN(nn.Module):
    """Images (B, 3, H, W) to 5 logits; `stages.1` returns 12 channels at a quarter of the size."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.stages = nn.Sequential(
            nn.Sequential(nn.Conv2d(8, 12, 3, stride=2, padding=1), nn.BatchNorm2d(12), nn.ReLU()),
            nn.Sequential(nn.Conv2d(12, 12, 3, padding=1), nn.ReLU()),
        )
        self.nothing = nn.Sequential()
        self.unused = nn.Conv2d(3, 3, 1)
        self.head = nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        features = self.nothing(self.stages(self.stem(x)))
        return self.head(features.mean(dim=(2, 3)))


def small_cnn(seed: int = 0) -> SmallCNN:
    """A network in evaluation mode whose batch norms have seen something."""
    torch.manual_seed(seed)
    model = SmallCNN()
    model(torch.randn(16, 3, 16, 16))
    return model.eval()
