import jax.numpy as jnp
import numpy as np
import pytest

from jengine.core.plan import ScheduledRequest, StepPlan
from jengine.runner.prompt_logprobs import (
    TARGETS,
    ReportedPrompt,
    pack_targets,
    prompt_logprobs,
    prompt_parts,
    unpack_targets,
)

VOCAB, WIDTH = 50, 8


def row(seat, start, token_ids, *, carries=False):
    return ScheduledRequest(
        f"r{seat}", seat, start, tuple(token_ids), carries, (), False, None
    )


def plan(*rows):
    return StepPlan(0, rows, 0, sum(one.num_tokens for one in rows), (), ())


PROMPT = ReportedPrompt((10, 11, 12, 13, 14), 2)


@pytest.mark.parametrize(
    ("start", "count", "expected"),
    [
        (0, 1, (1, (11,))),
        (0, 3, (1, (11, 12, 13))),
        (0, 5, (1, (11, 12, 13, 14))),  # the last token explains an output
        (3, 2, (4, (14,))),
        (4, 1, None),
        (3, 4, (4, (14,))),  # resumed with outputs
    ],
)
def test_a_token_is_explained_by_the_one_before_it(start, count, expected):
    rows = [row(7, 0, [1]), row(2, start, range(count))]
    parts = prompt_parts(plan(*rows), {2: PROMPT})
    if expected is None:
        assert parts == []
        return
    (part,) = parts
    assert (part.row, part.seat, part.first_index) == (1, 2, 1)
    assert (part.start, part.token_ids, part.num_logprobs) == (*expected, 2)


def test_tokens_that_are_carried_over_count():
    rows = [row(7, 9, [], carries=True), row(2, 0, [10, 11])]
    (part,) = prompt_parts(plan(*rows), {2: PROMPT})
    assert part.first_index == 1


def test_many_targets_are_reported_in_parts():
    rng = np.random.default_rng(0)
    prompts = {
        seat: ReportedPrompt(tuple(rng.integers(0, VOCAB, size=n).tolist()), seat + 1)
        for seat, n in enumerate([TARGETS // 2, TARGETS, 3])
    }
    rows = [row(seat, 0, one.token_ids) for seat, one in prompts.items()]
    parts = prompt_parts(plan(*rows), prompts)
    packed = pack_targets(parts)
    assert [one.shape for one in packed] == [(TARGETS, 2)] * 2
    states = rng.normal(size=(sum(len(r.token_ids) for r in rows), WIDTH))
    head = rng.normal(size=(VOCAB, WIDTH))
    outs = [
        np.asarray(
            prompt_logprobs(
                4,
                "raw_logprobs",
                jnp.asarray(head, jnp.float32),
                jnp.asarray(states, jnp.float32),
                jnp.asarray(one),
            )
        )
        for one in packed
    ]
    logits = states @ head.T
    expected = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    found = dict(unpack_targets(parts, outs))
    first = 0
    for seat, prompt in prompts.items():
        assert found[seat].start == 1
        assert len(found[seat].entries) == len(prompt.token_ids) - 1
        lines = zip(found[seat].entries, prompt.token_ids[1:], strict=True)
        for i, (entry, token_id) in enumerate(lines):
            values = expected[first + i]
            assert entry.sampled_logprob == pytest.approx(values[token_id], abs=1e-4)
            best = np.argsort(-values)[: seat + 1]
            assert [*entry.token_ids[: seat + 1]] == best.tolist()
            assert token_id in entry.token_ids
        first += len(prompt.token_ids)
