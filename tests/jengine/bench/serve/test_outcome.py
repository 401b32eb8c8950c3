from jengine.bench.serve.outcome import Outcome


def test_an_outcome_without_an_answer():
    one = Outcome(prompt_tokens=3, start_s=1.0, error="refused")
    assert (one.output_tokens, one.itl_s, one.text) == (0, (), "")
