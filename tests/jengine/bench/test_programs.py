from jengine.bench.programs import about_programs, count_programs
from jengine.metrics import Counter, Gauge


def test_programs_are_counted_by_their_metric():
    others = [
        Counter("jengine:steps", {}, 7),
        Gauge("jengine:a_gauge", {}, 1.0),
    ]
    assert count_programs([*others, Counter("jengine:compiled_programs", {}, 3)]) == 3
    assert count_programs(others) == 0


def test_an_engine_counts_them(make_llm, f2_dir):
    llm = make_llm(f2_dir)
    before = count_programs(llm.get_metrics())
    llm.generate([{"prompt_token_ids": [1, 2, 3]}], use_tqdm=False)
    assert count_programs(llm.get_metrics()) > before


def test_the_note_says_how_many_and_what_to_do():
    assert "note: 4 programs" in about_programs(4)
    assert "--warmup" in about_programs(4)
