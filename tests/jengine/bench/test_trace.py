import pytest

from jengine.bench.trace import TraceEntry, read_trace, scaled, shifted
from jengine.errors import InvalidValueError


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "trace.csv"
        path.write_text(text)
        return path

    return write


def test_dates_with_nine_digits_of_a_second(write):
    path = write(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 23:59:59.9799600,374,44\n"
        "2023-11-17 00:00:00.1319600,396,109\n"
        "2023-11-17 00:01:00,7,1\n"
    )
    first, second, third = read_trace(path)
    assert first == TraceEntry(0.0, 374, 44)
    assert second.arrival_s == pytest.approx(0.152)
    assert (second.prompt_tokens, second.output_tokens) == (396, 109)
    assert third.arrival_s == pytest.approx(60.02004)


def test_seconds_in_any_order_with_other_columns(write):
    path = write(
        "model,output_length,input_length,timestamp\nm,3,30,12.5\nm,1,10,10\n\n"
    )
    assert read_trace(path) == [TraceEntry(0.0, 10, 1), TraceEntry(2.5, 30, 3)]


@pytest.mark.parametrize(
    "header",
    [
        "arrival_time,prompt_tokens,output_tokens",
        "Timestamp,Request tokens,Response tokens",
        "\ufeffTIMESTAMP,ContextTokens,GeneratedTokens",
    ],
)
def test_names_of_columns(write, header):
    assert read_trace(write(f"{header}\n1,2,3\n")) == [TraceEntry(0.0, 2, 3)]


def test_zones_are_understood(write):
    path = write(
        "timestamp,prompt_tokens,output_tokens\n"
        "2024-05-10T00:00:00.250+00:00,1,1\n2024-05-10T00:00:01.000Z,1,1\n"
    )
    assert read_trace(path)[1].arrival_s == pytest.approx(0.75)
    path = write(
        "timestamp,prompt_tokens,output_tokens\n"
        "2024-05-10T00:00:00.25-05:00,1,1\n"  # 05:00:00.25 of UTC
        "2024-05-10T07:00:01.123456789+02:00,2,1\n2024-05-10T05:00:03,3,1\n"
    )
    assert [(one.arrival_s, one.prompt_tokens) for one in read_trace(path)] == [
        (0.0, 1),
        (pytest.approx(0.873456), 2),
        (pytest.approx(2.75), 3),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time,prompt_tokens\n", "one with a column generatedtokens"),
        ("", "one with a column timestamp"),
        ("time,prompt_tokens,output_tokens\n1,2\n", "line 2"),
        ("time,prompt_tokens,output_tokens\n1,2,3\nx,2,3\n", "line 3"),
        ("time,prompt_tokens,output_tokens\nnan,2,3\n", "line 2"),
        ("time,prompt_tokens,output_tokens\n1,-2,3\n", "line 2"),
        ("time,prompt_tokens,output_tokens\n1,inf,3\n", "line 2"),
    ],
)
def test_what_is_wrong_is_named(write, text, message):
    with pytest.raises(InvalidValueError, match=message):
        read_trace(write(text))


def test_a_file_that_is_no_text(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_bytes(bytes(range(255)) * 9)
    with pytest.raises(InvalidValueError, match="header of"):
        read_trace(path)


def test_time_scales_and_lengths_are_cut():
    entries = [TraceEntry(0.0, 5, 0), TraceEntry(10.0, 500, 50)]
    assert scaled(entries, speed=4.0, max_prompt_tokens=100, max_output_tokens=20) == [
        TraceEntry(0.0, 5, 1),
        TraceEntry(2.5, 100, 20),
    ]
    assert scaled(entries)[1] == entries[1]
    with pytest.raises(InvalidValueError, match="speed is 0"):
        scaled(entries, speed=0.0)


def test_a_part_of_a_trace_begins_at_zero():
    assert shifted([TraceEntry(7.0, 1, 1), TraceEntry(9.0, 1, 1)]) == [
        TraceEntry(0.0, 1, 1),
        TraceEntry(2.0, 1, 1),
    ]
    assert shifted([]) == []
