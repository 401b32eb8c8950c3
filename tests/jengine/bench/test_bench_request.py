from jengine.bench.bench_request import BenchRequest


def test_a_request_is_a_value():
    one = BenchRequest(token_ids=(1,), prompt_tokens=1, output_tokens=2)
    assert one == BenchRequest(token_ids=(1,), prompt_tokens=1, output_tokens=2)
    assert hash(one)
    assert one.text is None
    assert one.arrival_s is None
