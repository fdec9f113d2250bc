"""What every test finds set: one thread, for small tensors are slower on more, and the same random numbers."""

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
