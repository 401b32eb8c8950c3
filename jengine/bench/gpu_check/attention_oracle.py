"""What attention must give, head by head in float64 numpy."""

import numpy as np

from jengine.bench.gpu_check.attention_case import AttentionCase, StepArrays


def expected_attention(case: AttentionCase, arrays: StepArrays) -> np.ndarray:
    """Return the attended values of the real tokens, [T, H, D], in float64.

    Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1.
    """
    out = np.zeros((case.num_tokens, case.heads, case.head_dim))
    starts = arrays.query_start_loc
    for row, (before, now) in enumerate(case.rows):
        keys, values = (
            _dense(cache, scales, arrays.block_tables[row], before + now)
            for cache, scales in (
                (arrays.keys, arrays.key_scales),
                (arrays.values, arrays.value_scales),
            )
        )  # [S, K, D] each
        queries = arrays.queries[starts[row] : starts[row + 1]].astype(np.float64)
        sees = _visible(case, before, now)  # [T, S]
        for head in range(case.heads):
            kv_head = head * case.kv_heads // case.heads
            sink = None if arrays.sinks is None else float(arrays.sinks[head])
            scores = queries[:, head] @ keys[:, kv_head].T * case.scale  # [T, S]
            weights = _softmax(case, scores, sees, sink)
            attended = weights @ values[:, kv_head]
            out[starts[row] : starts[row + 1], head] = attended
    return out


def _softmax(
    case: AttentionCase, scores: np.ndarray, sees: np.ndarray, sink: float | None
) -> np.ndarray:
    if case.soft_cap is not None:
        scores = case.soft_cap * np.tanh(scores / case.soft_cap)
    scores = np.where(sees, scores, -np.inf)
    most = scores.max(axis=1, keepdims=True)
    if sink is not None:
        most = np.maximum(most, sink)
    weights = np.exp(scores - most)
    total = weights.sum(axis=1, keepdims=True)
    if sink is not None:
        total = total + np.exp(sink - most)
    return weights / total


def _visible(case: AttentionCase, before: int, now: int) -> np.ndarray:
    position = before + np.arange(now)[:, None]
    key = np.arange(before + now)[None, :]
    sees = key <= position
    if case.sliding_window is not None:
        sees &= key > position - case.sliding_window
    return sees


def _dense(
    cache: np.ndarray, scales: np.ndarray | None, table: np.ndarray, length: int
) -> np.ndarray:
    block_size = cache.shape[2]
    blocks = table[: -(-length // block_size)]
    dense = cache[blocks].astype(np.float64)  # [P, K, B, D]
    if scales is not None:
        dense *= scales[blocks].astype(np.float64)[..., None]
    return dense.transpose(0, 2, 1, 3).reshape(-1, cache.shape[1], cache.shape[3])[
        :length
    ]
