"""The logits of a Markov checkpoint are the rows it was made of."""

import pathlib
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from jengine.testing.markov import cycle, scripted, uniform, write_markov_checkpoint

RNG = np.random.default_rng(0)
TABLE = (5.0 * RNG.standard_normal((320, 320))).astype(np.float32)


def logits_after(path: pathlib.Path, token_ids: list[int]) -> np.ndarray:
    """What transformers computes in float32, a row a token."""
    torch = pytest.importorskip("torch")
    return load(path)(torch.tensor([token_ids])).logits[0].detach().numpy()


def load(path: pathlib.Path) -> Any:
    torch = pytest.importorskip("torch")
    from transformers import LlamaForCausalLM

    return LlamaForCausalLM.from_pretrained(path, dtype=torch.float32)


class TestTables:
    def test_scripted(self) -> None:
        table = scripted([4, 2, 7], 8)
        assert sorted(table) == [2, 4]
        assert [int(np.argmax(table[token])) for token in (4, 2)] == [2, 7]
        assert table[4][2] == 20.0
        assert np.count_nonzero(table[4]) == 1

    def test_script_with_a_repeated_id(self) -> None:
        with pytest.raises(ValueError, match="must be distinct"):
            scripted([1, 2, 1], 8)

    def test_cycle(self) -> None:
        table = cycle([4, 2, 7], 8)
        assert int(np.argmax(table[7])) == 4

    def test_uniform(self) -> None:
        table = uniform([3, 5], 8, after=[0])
        assert sorted(table) == [0, 3, 5]
        for row in table.values():
            np.testing.assert_array_equal(np.flatnonzero(row == 0.0), [3, 5])
            assert (np.delete(row, [3, 5]) == -1e4).all()


class TestCheckpoint:
    @pytest.mark.parametrize(
        ("dtype", "tolerance"),
        [("float32", 5e-6), ("bfloat16", 0.1), ("float16", 0.02)],
    )
    def test_closed_form(
        self, tmp_path: pathlib.Path, dtype: str, tolerance: float
    ) -> None:
        write_markov_checkpoint(tmp_path, TABLE, dtype=dtype)
        ids = [5, 9, 300, 2, 9]
        np.testing.assert_allclose(
            logits_after(tmp_path, ids), TABLE[ids], rtol=0, atol=tolerance
        )

    def test_wide_script(self, tmp_path: pathlib.Path) -> None:
        torch = pytest.importorskip("torch")
        script = [1, 504, 476, 12390, 7199, 18, 40303, 218, 216, 18645, 250, 48392, 2]
        table = scripted(script, 49152)
        write_markov_checkpoint(tmp_path, table, vocab_size=49152, hidden_size=64)
        out = load(tmp_path).generate(
            torch.tensor([[1]]), do_sample=False, max_new_tokens=20
        )
        assert out[0].tolist() == script

    def test_tokens_without_a_row_are_followed_by_anything(
        self, tmp_path: pathlib.Path
    ) -> None:
        write_markov_checkpoint(tmp_path, scripted([3, 4], 320))
        after = logits_after(tmp_path, [9, 3])
        np.testing.assert_array_equal(after[0], np.zeros(320))
        assert after[1, 4] == pytest.approx(20.0, abs=1e-5)

    def test_equal_rows_share_a_dimension(self, tmp_path: pathlib.Path) -> None:
        table = dict.fromkeys(range(320), TABLE[0]) | {7: TABLE[7]}
        write_markov_checkpoint(tmp_path, table, hidden_size=64)
        np.testing.assert_allclose(
            logits_after(tmp_path, [300, 7]), TABLE[[0, 7]], rtol=0, atol=5e-6
        )

    def test_nan_token(self, tmp_path: pathlib.Path) -> None:
        write_markov_checkpoint(tmp_path, TABLE, nan_tokens=[44])
        embedding = load_file(tmp_path / "model.safetensors")[
            "model.embed_tokens.weight"
        ]
        assert np.isnan(embedding[44]).all()
        assert np.isfinite(np.delete(embedding, 44, axis=0)).all()

    def test_too_many_rows(self, tmp_path: pathlib.Path) -> None:
        with pytest.raises(ValueError, match=r"320 distinct rows.*allows 64"):
            write_markov_checkpoint(tmp_path, TABLE, hidden_size=64)

    def test_same_bytes_each_time(self, tmp_path: pathlib.Path) -> None:
        for name in ("a", "b"):
            write_markov_checkpoint(tmp_path / name, TABLE, eos_token_id=[2, 7])
        for file in (tmp_path / "a").iterdir():
            assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()
