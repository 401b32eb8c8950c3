import json


def test_a_batch_is_measured(bench, asked, capsys, tmp_path):
    path = tmp_path / "latency.json"
    status = bench(
        "latency --input-len 4 --output-len 3 --batch-size 2 --num-iters-warmup 1"
        f" --num-iters 2 --output-json {path}"
    )
    assert status == 0
    assert asked == [{"enable_prefix_caching": False}]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Avg latency: ")
    assert lines[-1].startswith("99% percentile latency: ")
    found = json.loads(path.read_text())
    assert len(found["latencies"]) == 2
    assert found["batch_size"] == 2
    assert found["machine"]["cores"] >= 1
