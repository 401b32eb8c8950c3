from jengine.core.request import Request
from jengine.display.pool_text import describe_pool, pool_notes, table_rows


def test_a_pool_in_characters(play):
    _, scheduler = play({"A": [1, 2, 3, 4, 5, 6, 7, 8, 9]}, num_new_tokens=2)
    assert pool_notes(scheduler.cache.pool)[:2] == [
        "    0 0oo",
        "blocks 3 to 39 are free and empty",
    ]
    for name in "XY":
        prompt = [1, 2, 3, 4, ord(name)]
        scheduler.add(Request(name, prompt, max_total_tokens=12))
    scheduler.schedule()
    assert pool_notes(scheduler.cache.pool)[0] == "    0 02o11"
    assert table_rows(scheduler.cache) == [("X", 2, "1 3"), ("Y", 2, "1 4")]
    assert describe_pool(scheduler.cache) == (
        "KV pool: 39 blocks of 4 tokens; 3 in use, 36 free (1 keep their content for "
        "the prefix cache)"
    )


def test_large_pools_and_many_tables_are_cut(play):
    _, scheduler = play({}, num_blocks=3000, max_num_seqs=64, token_budget=9999)
    for number in range(20):
        prompt = [number, *range(400)]
        scheduler.add(Request(str(number), prompt, max_total_tokens=500))
    scheduler.schedule()
    notes = pool_notes(scheduler.cache.pool)
    assert notes[0] == "    0 0" + "1" * 63
    assert notes[16].startswith("... up to block 2020")
    assert len(notes) == 19
    rows = table_rows(scheduler.cache)
    assert rows[0] == ("0", 101, "1-101")
    assert rows[-1] == ("4 more", 404, "...")
