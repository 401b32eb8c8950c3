import json

from jengine.bench.gpu_check.events import EventFile, event_line, read_events


def write(path, *events):
    with path.open("a") as file:
        file.writelines(event_line(event) for event in events)


def test_numbers_that_json_lacks_are_spelled_out():
    line = event_line({"case": "a", "errors": [float("nan"), 1.5, float("-inf")]})
    assert json.loads(line)["errors"] == ["nan", 1.5, "-inf"]


def test_a_line_that_was_cut_off_is_left_out():
    whole = event_line({"event": "start", "case": "a"})
    assert read_events(whole + '{"event": "en') == [{"event": "start", "case": "a"}]
    assert read_events("") == []


def test_a_case_that_started_and_did_not_end_is_open(tmp_path):
    file = EventFile(tmp_path / "part.jsonl")
    assert (file.cases, file.open_case, file.ended) == ([], None, [])
    write(
        file.path,
        {"event": "start", "case": "a"},
        {"event": "end", "case": "a", "status": "ok", "seconds": 1.0},
        {"event": "start", "case": "b"},
    )
    assert file.open_case == "b"
    assert file.ended == ["a"]
    assert file.cases == [
        {"case": "a", "status": "ok", "seconds": 1.0},
        {"case": "b", "status": "running"},
    ]


def test_closing_a_case_drops_what_was_cut_off(tmp_path):
    file = EventFile(tmp_path / "part.jsonl")
    write(file.path, {"event": "start", "case": "a"})
    with file.path.open("a") as lines:
        lines.write('{"event": "end", "ca')
    file.close("a", "crashed", "signal 6")
    write(file.path, {"event": "start", "case": "b"})
    assert file.cases == [
        {"case": "a", "status": "crashed", "reason": "signal 6"},
        {"case": "b", "status": "running"},
    ]
