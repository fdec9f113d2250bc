"""Answering questions about images: the modular co-attention network of continuous 6.2, with any output pooling.

Words attend to words in an encoder; the image attends to itself and to the words in a decoder (Yu et al. 2019, the
encoder-decoder). Then one attention gathers the words and one, any pooling of `foveate.pooling`, the image.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from foveate.geometry import pixel_centers
from foveate.pooling import Pool
from foveate.pooling.base import Score


class Attend(nn.Module):
    """Multi-head attention from x to y, added to x and normalised."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, dropout, batch_first=True)
        self.dropout, self.norm = nn.Dropout(dropout), nn.LayerNorm(width)

    def forward(self, x: Tensor, y: Tensor, ignored: Tensor | None = None) -> Tensor:
        """x (B, N, D), y (B, M, D) and which of y to ignore (B, M), to (B, N, D)."""
        gathered, _ = self.attention(x, y, y, key_padding_mask=ignored, need_weights=False)
        normed: Tensor = self.norm(x + self.dropout(gathered))
        return normed


class FeedForward(nn.Module):
    """A hidden layer four times as wide, added and normalised."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(width, 4 * width),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(4 * width, width),
            nn.Dropout(dropout),
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, N, D) to the same shape."""
        normed: Tensor = self.norm(x + self.layers(x))
        return normed


class SelfAttention(nn.Module):
    """The SA unit: x attends to itself."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.own, self.feed = Attend(width, heads, dropout), FeedForward(width, dropout)

    def forward(self, x: Tensor, ignored: Tensor | None = None) -> Tensor:
        """x (B, N, D), and which of its elements to ignore (B, N)."""
        fed: Tensor = self.feed(self.own(x, x, ignored))
        return fed


class GuidedAttention(nn.Module):
    """The SGA unit: x attends to itself, then to y, which guides it."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.own, self.guided = Attend(width, heads, dropout), Attend(width, heads, dropout)
        self.feed = FeedForward(width, dropout)

    def forward(self, x: Tensor, y: Tensor, ignored: Tensor | None = None) -> Tensor:
        """x (B, N, D), y (B, M, D), and which elements of y to ignore (B, M)."""
        fed: Tensor = self.feed(self.guided(self.own(x, x), y, ignored))
        return fed


class CoAttention(nn.Module):
    """The encoder-decoder of continuous Fig. 6.2: `layers` SA units for the words, then as many SGA units.

    >>> words, image = CoAttention(layers=2, width=16, heads=4)(torch.rand(3, 9, 16), torch.rand(3, 49, 16))
    >>> words.shape, image.shape
    (torch.Size([3, 9, 16]), torch.Size([3, 49, 16]))
    """

    def __init__(self, layers: int = 6, width: int = 512, heads: int = 8, dropout: float = 0.1) -> None:
        super().__init__()
        self.encoder = nn.ModuleList(SelfAttention(width, heads, dropout) for _ in range(layers))
        self.decoder = nn.ModuleList(GuidedAttention(width, heads, dropout) for _ in range(layers))

    def forward(self, words: Tensor, image: Tensor, ignored: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Words (B, T, D), image (B, L, D), and which words to ignore (B, T)."""
        for unit in self.encoder:
            words = unit(words, ignored)
        for unit in self.decoder:
            image = unit(image, words, ignored)
        return words, image


class QuestionEncoder(nn.Module):
    """Word embeddings and an LSTM over them; word 0 fills a question up.

    Args:
        vocabulary: how many words there are.
        embedding: width of their embeddings.
        width: of the LSTM's states.
        vectors: first values of the embeddings, (vocabulary, embedding), for instance GloVe's.
    """

    def __init__(self, vocabulary: int, embedding: int = 300, width: int = 512, vectors: Tensor | None = None) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, width, batch_first=True)
        if vectors is not None:
            if vectors.shape != self.embedding.weight.shape:
                expected = tuple(self.embedding.weight.shape)
                raise ValueError(f"the word vectors are {tuple(vectors.shape)}, but {expected} are needed")
            self.embedding.weight.data.copy_(vectors)

    def forward(self, question: Tensor) -> tuple[Tensor, Tensor]:
        """Word numbers (B, T) to states (B, T, width) and which of them are filling (B, T)."""
        states, _ = self.lstm(self.embedding(question))
        filling = question == 0
        return states, filling & ~filling.all(1, keepdim=True)  # an empty question attends to its filling


class WordPool(nn.Module):
    """The words' average, weighted by softmax of their scores (the same in every model, continuous 6.2.2)."""

    def __init__(self, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.score = Score(width, hidden, dropout=dropout)

    def forward(self, words: Tensor, ignored: Tensor) -> Tensor:
        """Words (B, T, D) and which of them to ignore (B, T), to (B, D)."""
        scores: Tensor = self.score(words.mT).masked_fill(ignored, float("-inf"))
        return (words * scores.softmax(1)[:, :, None].to(words.dtype)).sum(1)


class AnswerNetwork(nn.Module):
    """An image's features and a question to a logit for each answer.

    Args:
        vocabulary: how many words there are; 0 fills a question up.
        answers: how many answers there are.
        channels: of the image's features.
        pool: gathers the image, built for `width` channels.
        embedding, width, fused: widths of the word embeddings, of both representations, and of their fusion.
        layers, heads, dropout: of the co-attention, see Table 6.1.
        hidden: width of the layer before the words' scores.
        coordinates: add a learned function of row and column to the image's features, for features that tell no place.
        vectors: first values of the word embeddings.

    >>> from foveate.pooling import DiscretePool
    >>> network = AnswerNetwork(20, 5, 32, DiscretePool(16), width=16, fused=24, layers=1, heads=4, hidden=8)
    >>> network(torch.rand(2, 32, 14, 14), torch.randint(20, (2, 9))).shape
    torch.Size([2, 5])
    """

    def __init__(
        self,
        vocabulary: int,
        answers: int,
        channels: int,
        pool: Pool,
        embedding: int = 300,
        width: int = 512,
        fused: int = 1024,
        layers: int = 6,
        heads: int = 8,
        dropout: float = 0.1,
        hidden: int = 512,
        coordinates: bool = False,
        vectors: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.question = QuestionEncoder(vocabulary, embedding, width, vectors)
        self.project = nn.Linear(channels, width)
        self.place = nn.Linear(2, width, bias=False) if coordinates else None
        self.coattention = CoAttention(layers, width, heads, dropout)
        self.word_pool = WordPool(width, hidden, dropout)
        self.pool = pool
        self.fuse_words, self.fuse_image = nn.Linear(width, fused), nn.Linear(width, fused)
        self.norm = nn.LayerNorm(fused)
        self.answer = nn.Linear(fused, answers)

    def forward(self, grid: Tensor, question: Tensor) -> Tensor:
        """An image's features (B, C, H, W) and word numbers (B, T), to logits (B, answers)."""
        words, ignored = self.question(question)
        positions = self.project(grid.flatten(2).mT)
        if self.place is not None:
            positions = positions + self.place(_places(grid))
        words, positions = self.coattention(words, positions, ignored)
        seen = self.pool(positions.mT.unflatten(2, grid.shape[2:]))
        logits: Tensor = self.answer(self.norm(self.fuse_words(self.word_pool(words, ignored)) + self.fuse_image(seen)))
        return logits


def _places(grid: Tensor) -> Tensor:
    """Row and column in [−1, 1] of the positions of features (B, C, H, W), (H·W, 2)."""
    rows, columns = (2 * pixel_centers(length, grid) - 1 for length in grid.shape[2:])
    return torch.stack(torch.meshgrid(rows, columns, indexing="ij"), -1).flatten(0, 1)


class SmallGrid(nn.Module):
    """Four convolutions to features at a quarter of the size: 14×14 of an image of 56×56.

    >>> SmallGrid(24)(torch.rand(2, 3, 56, 56)).shape
    torch.Size([2, 24, 14, 14])
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        widths, strides = (3, channels // 2, channels, channels, channels), (2, 2, 1, 1)
        self.layers = nn.Sequential(
            *(
                nn.Sequential(nn.Conv2d(a, b, 3, stride, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU())
                for a, b, stride in zip(widths, widths[1:], strides, strict=False)
            )
        )

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W) in [0, 1] to features."""
        features: Tensor = self.layers(2 * images - 1)
        return features
