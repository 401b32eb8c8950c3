import json


def test_a_grid_with_a_point_that_fails(bench, asked, capsys, tmp_path):
    path = tmp_path / "found.json"
    status = bench(
        "sweep --grid max_num_seqs=2,4,0 --block-size 32 --num-prompts 4 --input-len 4"
        f" --output-len 3 --num-warmups 0 --output-json {path}"
    )
    assert status == 0
    assert asked == [{"max_num_seqs": n, "block_size": 32} for n in (2, 4)]
    out, err = capsys.readouterr()
    rows = [line.split() for line in out.splitlines()]
    assert [row[0] for row in rows] == ["max_num_seqs", "------------", "2", "4", "0"]
    assert rows[4][1] == "failed"
    assert sum("best" in row for row in rows) == 1
    assert "max_num_seqs=0: ConfigError" in err
    points = json.loads(path.read_text())["points"]
    assert [point["options"]["max_num_seqs"] for point in points] == [2, 4, 0]
    assert points[0]["result"]["total_output_tokens"] == 12


def test_nothing_could_be_measured(bench):
    assert bench("sweep --grid block_size=0 --num-prompts 1") == 1
