"""A request's text ends at its first stop string, however it arrives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jengine.text import stop as stop_module
from jengine.text.stop import StopStrings

PIECES = ["The", ' "', "desc", "ribed", '"', " ", "😀", " ", "你好"]
FULL = "".join(PIECES)


def run(
    stop: list[str], pieces: list[str], *, include: bool = False, min_tokens: int = 0
) -> tuple[str, str | None, int]:
    """Return the text, the stop string and how many pieces were pushed."""
    strings = StopStrings(stop, include_in_output=include)
    text, num_pushed = "", 0
    for num_pushed, piece in enumerate(pieces, start=1):
        text += strings.push(piece, may_match=num_pushed > min_tokens)
        if strings.matched is not None:
            break
    return text + strings.finish(), strings.matched, num_pushed


def find(
    stop: list[str], text: str, *, include: bool = False, start: int = 0
) -> tuple[str, str | None]:
    """The same by searching the whole text."""
    found = [(text.find(s, start), i, s) for i, s in enumerate(stop)]
    ends = [(at + len(s), i, at, s) for at, i, s in found if at >= 0]
    if not ends:
        return text, None
    end, _, at, matched = min(ends)
    return text[: end if include else at], matched


class TestAcrossAndInsideTokens:
    @pytest.mark.parametrize("include", [False, True])
    @pytest.mark.parametrize(
        ("stop", "num_tokens"),
        [
            (["cri"], 4),
            (['"d'], 3),
            (['bed" '], 6),
            (["ribed", "desc"], 3),
            ([" "], 2),
            (["zzz"], 9),
            (["😀"], 7),
            (["zzz", "好", "zz"], 9),
        ],
    )
    def test_stp_01_equals_find(
        self, stop: list[str], num_tokens: int, include: bool
    ) -> None:
        text, matched, num_pushed = run(stop, PIECES, include=include)
        at = min((FULL.find(s), s) for s in stop if s in FULL) if matched else None
        assert num_pushed == num_tokens
        if at is None:
            assert text == FULL
            return
        assert matched == at[1]
        assert text == FULL[: at[0] + (len(at[1]) if include else 0)]

    def test_stp_01_never_across_the_prompt_border(self) -> None:
        # The prompt is never pushed: "stop" is not found if it begins in the prompt.
        assert run(["stop"], ["op", " st", "op!"]) == ("op ", "stop", 3)

    def test_stp_01_the_match_complete_first_wins(self) -> None:
        assert run(["abcd", "bc"], ["abcd"]) == ("a", "bc", 1)
        assert run(["abcd", "bc"], ["a", "b", "c", "d"]) == ("a", "bc", 3)

    def test_stp_01_ties_go_to_the_first_in_the_list(self) -> None:
        assert run(["bc", "abc"], ["abc"])[:2] == ("a", "bc")
        assert run(["abc", "bc"], ["abc"])[:2] == ("", "abc")

    def test_stp_01_streaming_keeps_back_what_may_become_a_stop(self) -> None:
        strings = StopStrings(["</end>"])
        assert strings.push("a</") == "a"
        assert strings.push("en") == ""
        assert strings.push("ough") == "</enough"
        assert strings.push(" </end> more") == " "
        assert strings.matched == "</end>"
        assert strings.push("x") == strings.finish() == ""

    def test_stp_01_including_the_stop_keeps_nothing_back(self) -> None:
        strings = StopStrings(["</end>"], include_in_output=True)
        assert strings.push("a</") == "a</"
        assert strings.push("end> more") == "end>"
        assert strings.matched == "</end>"


class TestMinTokens:
    def test_stp_03_a_match_lies_in_later_text(self) -> None:
        pieces = ["30", "31", "32", "31", "33"]
        assert run(["31"], pieces, min_tokens=1) == ("30", "31", 2)
        assert run(["31"], pieces, min_tokens=2) == ("303132", "31", 4)
        assert run(["31"], pieces, min_tokens=4) == ("3031323133", None, 5)

    def test_stp_03_a_match_does_not_begin_in_earlier_text(self) -> None:
        assert run(["ab"], ["a", "b", "ab"], min_tokens=1) == ("ab", "ab", 3)


class TestOddStops:
    @pytest.mark.parametrize("stop", [[""], ["x", ""]])
    def test_stp_04_empty_string_is_refused(self, stop: list[str]) -> None:
        with pytest.raises(ValueError, match="must not be empty"):
            StopStrings(stop)

    def test_stp_04_no_stop(self) -> None:
        strings = StopStrings([])
        assert [strings.push(piece) for piece in PIECES] == PIECES
        assert strings.finish() == ""

    def test_stp_04_longer_than_the_output(self) -> None:
        assert run(["x" * 10_000], ["x" * 9_999]) == ("x" * 9_999, None, 1)
        assert run(["x" * 10_000], ["xx"] * 5_001) == ("", "x" * 10_000, 5_000)

    def test_stp_04_long_stops_cost_no_more_than_the_text(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        num_steps = 0

        def count(matcher: stop_module._Matcher, length: int, character: str) -> int:
            nonlocal num_steps
            num_steps += 1
            return extend(matcher, length, character)

        extend = stop_module._Matcher._extend
        monkeypatch.setattr(stop_module._Matcher, "_extend", count)
        strings = StopStrings([f"{'x' * 10_000}{i}" for i in range(5)])
        pieces = ["xxxx"] * 100 + ["xxy"] * 10
        for piece in pieces:
            strings.push(piece)
        assert num_steps <= 5 * 2 * len("".join(pieces))

    def test_stp_04_fifty_stops(self) -> None:
        stop = [f"<{i}>" for i in range(50)]
        assert run(stop, ["a <4", "9", "> b"]) == ("a ", "<49>", 3)


class TestEndOfText:
    def test_stp_05_text_kept_back_is_given_out_at_the_end(self) -> None:
        strings = StopStrings(["bed!"])
        assert strings.push("desc") == "desc"
        assert strings.push("ribed") == "ri"
        assert strings.finish() == "bed"
        assert strings.finish() == ""


pieces_of_ab = st.lists(st.text("abc", max_size=4), max_size=12)
stops_of_ab = st.lists(st.text("ab", min_size=1, max_size=5), max_size=4)


@given(stop=stops_of_ab, pieces=pieces_of_ab, include=st.booleans())
def test_pieces_equal_a_search_of_the_whole(
    stop: list[str], pieces: list[str], include: bool
) -> None:
    text, matched, _ = run(stop, pieces, include=include)
    assert (text, matched) == find(stop, "".join(pieces), include=include)


@given(stop=stops_of_ab, pieces=pieces_of_ab, min_tokens=st.integers(0, 12))
def test_min_tokens_equals_a_search_from_there(
    stop: list[str], pieces: list[str], min_tokens: int
) -> None:
    start = len("".join(pieces[:min_tokens]))
    text, matched, _ = run(stop, pieces, min_tokens=min_tokens)
    assert (text, matched) == find(stop, "".join(pieces), start=start)


@given(stop=stops_of_ab, pieces=pieces_of_ab)
def test_what_is_shown_is_final_and_as_long_as_can_be(
    stop: list[str], pieces: list[str]
) -> None:
    strings, shown, text = StopStrings(stop), "", ""
    for piece in pieces:
        shown += strings.push(piece)
        text += piece
        if strings.matched is not None:
            break
        held = text[len(shown) :]
        assert text.startswith(shown)
        starts = [i for i in range(len(text)) if any_starts(stop, text[i:])]
        assert len(held) == len(text) - min(starts, default=len(text))


def any_starts(stop: list[str], end: str) -> bool:
    return any(string.startswith(end) for string in stop)
