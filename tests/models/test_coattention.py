"""The co-attention network against the formulas, position by position."""

import pytest
import torch
from scored import scored
from torch import nn

from foveate import watch
from foveate.models.coattention import AnswerNetwork, Attend, CoAttention, FeedForward, QuestionEncoder, WordPool
from foveate.pooling import DiscretePool


def network(**options) -> AnswerNetwork:
    sizes = {"width": 16, "fused": 24, "layers": 2, "heads": 4, "hidden": 8, "embedding": 6, "dropout": 0.0}
    return scored(AnswerNetwork(20, 5, 12, DiscretePool(16), **{**sizes, **options})).eval()


def attention(x, y, module: nn.MultiheadAttention, heads: int, ignored) -> torch.Tensor:
    """Multi-head attention of one image, by loops over heads and queries."""
    wq, wk, wv = module.in_proj_weight.chunk(3)
    bq, bk, bv = module.in_proj_bias.chunk(3)
    width = x.shape[1] // heads
    outputs = []
    for i in range(len(x)):
        parts = []
        for h in range(heads):
            s = slice(h * width, (h + 1) * width)
            q = wq[s] @ x[i] + bq[s]
            scores = torch.stack([q @ (wk[s] @ y[j] + bk[s]) / width**0.5 for j in range(len(y))])
            scores = scores.masked_fill(ignored, -torch.inf).softmax(0)
            parts.append(sum(scores[j] * (wv[s] @ y[j] + bv[s]) for j in range(len(y))))
        outputs.append(module.out_proj(torch.cat(parts)))
    return torch.stack(outputs)


def test_the_whole_network_against_loops() -> None:
    model = network(layers=1, coordinates=True)
    grid, question = torch.randn(1, 12, 2, 3), torch.tensor([[4, 7, 2, 0, 0]])
    ignored = question[0] == 0
    states, _ = model.question.lstm(model.question.embedding(question))
    y = states[0]
    places = torch.tensor([[(2 * i + 1) / 2 - 1, (2 * j + 1) / 3 - 1] for i in range(2) for j in range(3)])
    x = torch.stack([model.project(grid[0, :, i, j]) for i in range(2) for j in range(3)]) + model.place(places)

    def unit(module: Attend, x, y, ignored):
        return module.norm(x + attention(x, y, module.attention, 4, ignored))

    def feed(module: FeedForward, x):
        return module.norm(x + module.layers[3](torch.relu(module.layers[0](x))))

    encoder, decoder = model.coattention.encoder[0], model.coattention.decoder[0]
    y = feed(encoder.feed, unit(encoder.own, y, y, ignored))
    x = unit(decoder.own, x, x, torch.zeros(6, dtype=torch.bool))
    x = feed(decoder.feed, unit(decoder.guided, x, y, ignored))
    scores = torch.stack([model.word_pool.score.last(torch.relu(model.word_pool.score.hidden(v)))[0] for v in y])
    words = scores.masked_fill(ignored, -torch.inf).softmax(0) @ y
    seen = torch.stack([model.pool.look.score.last(v)[0] for v in x]).softmax(0) @ x
    fused = model.norm(model.fuse_words(words) + model.fuse_image(seen))  # LayerNorm(W_y ỹ + W_x x̃)
    assert torch.allclose(model(grid, question)[0], model.answer(fused), atol=1e-5)


def test_filling_changes_nothing() -> None:
    model, grid = network(), torch.randn(2, 12, 3, 3)
    question = torch.randint(1, 20, (2, 5))
    longer = torch.cat([question, torch.zeros(2, 4, dtype=torch.long)], dim=1)
    assert torch.allclose(model(grid, question), model(grid, longer), atol=1e-5)
    empty = model(grid, torch.zeros(2, 5, dtype=torch.long))
    assert empty.isfinite().all()


def test_the_sizes_of_table_6_1() -> None:
    with torch.device("meta"):
        model = AnswerNetwork(20000, 3129, 2048, DiscretePool(512, hidden=512, dropout=0.1))
    attend = model.coattention.encoder[0].own.attention
    assert (len(model.coattention.encoder), len(model.coattention.decoder)) == (6, 6)
    assert (attend.embed_dim, attend.num_heads, attend.dropout) == (512, 8, 0.1)
    assert model.question.embedding.embedding_dim == 300
    assert model.norm.normalized_shape == (1024,)
    assert model.word_pool.score.hidden.out_features == 512


def test_any_pooling_is_watched() -> None:
    model = network()
    with watch(model) as gazes:
        model(torch.randn(3, 12, 4, 5), torch.randint(1, 20, (3, 6)))
    assert gazes["pool"].map.shape == (3, 1, 4, 5)


def test_gradients_reach_everything() -> None:
    model = network(coordinates=True).train()
    model(torch.randn(3, 12, 4, 4), torch.randint(1, 20, (3, 6))).square().sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_word_vectors() -> None:
    vectors = torch.randn(20, 6)
    assert torch.equal(QuestionEncoder(20, 6, 4, vectors).embedding.weight, vectors)
    with pytest.raises(ValueError, match=r"are \(20, 6\), but \(20, 7\) are needed"):
        QuestionEncoder(20, 7, 4, vectors)


def test_words_that_fill_up_weigh_nothing() -> None:
    pool, words = scored(WordPool(8, 4, 0.0)), torch.randn(2, 5, 8)
    ignored = torch.tensor([[False] * 3 + [True] * 2] * 2)
    assert torch.allclose(pool(words, ignored), pool(words[:, :3], ignored[:, :3]), atol=1e-6)


@pytest.mark.parametrize("batch", [0, 1])
def test_small_batches(batch: int) -> None:
    words, image = CoAttention(1, 8, 2)(torch.randn(batch, 3, 8), torch.randn(batch, 1, 8))
    assert (words.shape, image.shape) == ((batch, 3, 8), (batch, 1, 8))
