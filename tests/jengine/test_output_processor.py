"""What users see, as a function of a request's known tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jengine import RequestOutputKind, SamplingParams
from jengine.core.events import TokenEvent
from jengine.core.plan import TokenLogprobs
from jengine.core.request import FinishReason, Request
from jengine.output_processor import OutputProcessor
from jengine.outputs import Logprob
from jengine.request_text import RequestText

PROMPT = [7, 8]
NO_TOKENIZER = 99  # an id that the tokenizer lacks


def logprobs_of(token_id, index=0):
    """The sampled token is the second best; values depend on its index."""
    value = -1.5 - index
    return TokenLogprobs((25, token_id), (-0.5, value), (1, 2), value)


class Followed:
    """A request whose tokens come one by one, as the scheduler adds them."""

    def __init__(self, tokenizer, *, name="r", **options):
        self.params = SamplingParams(**options)
        self.request = Request(
            name,
            PROMPT,
            max_total_tokens=90,
            stop_token_ids=frozenset(self.params.stop_token_ids),
        )
        self.text = RequestText(self.request, self.params, tokenizer)

    def event(self, token_id, finish=None, stop_reason=None):
        self.request.token_ids.append(token_id)
        if finish is not None:
            self.request.finish(finish, stop_reason)
        asked = self.params.logprobs is not None
        index = self.request.num_output_tokens - 1
        logprobs = logprobs_of(token_id, index) if asked else None
        return TokenEvent(self.request, (token_id,), logprobs)

    def restore(self):
        self.text.forget_unexplained()
        self.text.restore()

    def learn(self, token_id, finish=None, stop_reason=None):
        self.text.take(self.event(token_id, finish, stop_reason).logprobs)

    @property
    def seen(self):
        text = self.text
        return (
            text.text,
            text.output_ids(),
            text.logprobs,
            text.cumulative_logprob,
            (text.finish_reason, text.stop_reason),
        )


def ids_of(text):
    return [ord(letter) - ord("a") for letter in text]


class TestText:
    def test_grows_with_the_tokens(self, letters):
        followed = Followed(letters)
        for i, token_id in enumerate(ids_of("hello")):
            followed.learn(token_id)
            assert followed.text.text == "hello"[: i + 1]
        assert not followed.text.is_finished

    @pytest.mark.parametrize("include", [False, True])
    @pytest.mark.parametrize(
        ("reason", "shown"),
        [
            (FinishReason.STOP, "ab"),
            (FinishReason.LENGTH, "abc"),
            (FinishReason.ABORT, "abc"),
        ],
    )
    def test_hides_the_token_that_ended_it(self, letters, include, reason, shown):
        followed = Followed(
            letters, include_stop_str_in_output=include, stop_token_ids=[2]
        )
        followed.learn(0)
        followed.learn(1)
        followed.learn(2, reason, 2 if reason is FinishReason.STOP else None)
        assert followed.text.text == ("abc" if include else shown)
        assert followed.text.output_ids() == [0, 1, 2]
        assert followed.text.finish_reason == reason.value
        assert followed.text.is_finished

    def test_holds_back_what_may_become_a_stop_string(self, letters):
        followed = Followed(letters, stop="bcd")
        shown = []
        for token_id in ids_of("abcxbc"):
            followed.learn(token_id)
            shown.append(followed.text.text)
        assert shown == ["a", "a", "a", "abcx", "abcx", "abcx"]
        followed.learn(0, FinishReason.LENGTH)
        assert followed.text.text == "abcxbca"

    def test_an_end_gives_out_what_was_held_back(self, letters):
        followed = Followed(letters, stop="bcd")
        for token_id in ids_of("ab"):
            followed.learn(token_id)
        followed.learn(2, FinishReason.LENGTH)
        assert followed.text.text == "abc"

    @pytest.mark.parametrize("include", [False, True])
    def test_ends_at_a_stop_string(self, letters, include):
        followed = Followed(letters, stop=["cd"], include_stop_str_in_output=include)
        for token_id in ids_of("abcd"):
            followed.learn(token_id)
        assert followed.text.text == ("abcd" if include else "ab")
        assert followed.text.is_finished
        assert (followed.text.finish_reason, followed.text.stop_reason) == (
            "stop",
            "cd",
        )
        followed.learn(4)  # one step ahead, a token too many
        assert followed.text.output_ids() == ids_of("abcd")

    @pytest.mark.parametrize(
        ("min_tokens", "shown"), [(0, "a"), (1, "a"), (2, "abaa"), (4, "abaa")]
    )
    def test_stop_strings_count_after_min_tokens(self, letters, min_tokens, shown):
        followed = Followed(letters, stop="b", min_tokens=min_tokens)
        for token_id in ids_of("abaab"):
            followed.learn(token_id)
        assert followed.text.text == shown
        assert followed.text.stop_reason == "b"

    def test_is_empty_without_a_tokenizer_or_wish(self, letters):
        for followed in (Followed(None), Followed(letters, detokenize=False)):
            followed.learn(3)
            assert (followed.text.text, followed.text.output_ids()) == ("", [3])


class TestLogprobs:
    def test_entries(self, letters):
        followed = Followed(letters, logprobs=1)
        followed.learn(0)
        followed.learn(NO_TOKENIZER)
        first, second = followed.text.logprobs
        assert first == {25: Logprob(-0.5, 1, "z"), 0: Logprob(-1.5, 2, "a")}
        assert list(first) == [25, 0]  # best first
        assert second[NO_TOKENIZER] == Logprob(-2.5, 2, "")
        assert followed.text.cumulative_logprob == -4.0

    def test_no_text_of_tokens_without_a_tokenizer(self, letters):
        for followed in (
            Followed(None, logprobs=1),
            Followed(letters, logprobs=1, detokenize=False),
        ):
            followed.learn(0)
            entry = followed.text.logprobs[0]
            assert {one.decoded_token for one in entry.values()} == {None}


class TestRestore:
    @given(
        ids=st.lists(st.integers(0, 4), min_size=1, max_size=12),
        stop=st.sampled_from([(), ("b",), ("abc", "ca"), ("aaaa",)]),
        logprobs=st.sampled_from([None, 1]),
        include=st.booleans(),
        min_tokens=st.integers(0, 3),
        cuts=st.lists(
            st.tuples(st.integers(0, 12), st.sampled_from(["before", "between"])),
            max_size=4,
        ),
    )
    def test_an_interrupted_run_shows_the_same(
        self, letters, ids, stop, logprobs, include, min_tokens, cuts
    ):
        options = {
            "stop": stop,
            "logprobs": logprobs,
            "include_stop_str_in_output": include,
            "min_tokens": min_tokens,
        }
        whole, broken = Followed(letters, **options), Followed(letters, **options)
        for token_id in ids:
            whole.learn(token_id)
        cuts = set(cuts)
        while broken.request.num_output_tokens < len(ids):
            index = broken.request.num_output_tokens
            if (index, "before") in cuts:
                broken.restore()
                cuts.discard((index, "before"))
                continue  # tokens may have been forgotten: they are drawn again
            if (index, "between") in cuts:  # known, but not yet taken in
                cuts.discard((index, "between"))
                broken.event(ids[index])
                broken.restore()
                continue
            broken.learn(ids[index])
        assert broken.seen == whole.seen

    def test_tokens_whose_logprobs_were_lost_are_forgotten(self, letters):
        followed = Followed(letters, logprobs=1)
        followed.learn(0)
        followed.event(1)
        followed.restore()
        assert followed.request.token_ids == [*PROMPT, 0]
        followed.learn(1)
        assert followed.text.text == "ab"
        assert len(followed.text.logprobs) == 2

    def test_without_logprobs_nothing_is_forgotten(self, letters):
        followed = Followed(letters)
        followed.learn(0)
        followed.event(1)
        followed.restore()
        assert followed.request.token_ids == [*PROMPT, 0, 1]
        assert followed.text.text == "ab"

    def test_a_sum_that_lags_behind_is_made_good(self, letters):
        followed = Followed(letters, logprobs=1)
        followed.learn(0)
        followed.learn(1)
        followed.text.cumulative_logprob = -1.5  # the second was being added
        followed.restore()
        assert followed.text.cumulative_logprob == -4.0


class TestOutputProcessor:
    @pytest.fixture
    def make(self, letters):
        """Returns a processor that follows requests of these kinds."""

        def make(**kinds):
            processor = OutputProcessor(letters)
            followed = {
                name: Followed(letters, name=name, **options)
                for name, options in kinds.items()
            }
            for one in followed.values():
                name = one.request.request_id
                processor.add(name, [one.request], "hi", one.params)
            return processor, followed

        return make

    def test_outputs_come_in_the_order_of_events_and_by_kind(self, make):
        processor, followed = make(
            a={"output_kind": RequestOutputKind.DELTA, "logprobs": 1},
            b={"output_kind": RequestOutputKind.CUMULATIVE},
            c={"output_kind": RequestOutputKind.FINAL_ONLY},
        )
        processor.process([followed[n].event(0) for n in "cab"])
        processor.commit()
        step = processor.process([followed[n].event(1) for n in "cba"])
        assert step.stopped == []
        assert [o.request_id for o in step.outputs] == ["b", "a"]
        b, a = (o.outputs[0] for o in step.outputs)
        assert (b.token_ids, b.text, b.logprobs) == ([0, 1], "ab", None)
        assert (a.token_ids, a.text, len(a.logprobs)) == ([1], "b", 1)
        assert (b.cumulative_logprob, a.cumulative_logprob) == (None, -4.0)
        assert step.outputs[0].prompt == "hi"
        assert step.outputs[0].prompt_token_ids == PROMPT
        last = processor.process([followed["c"].event(2, FinishReason.LENGTH)])
        processor.commit()
        (output,) = last.outputs
        assert (output.finished, output.outputs[0].token_ids) == (True, [0, 1, 2])
        live = [followed["a"].request, followed["b"].request]
        assert processor.roll_back() == live

    def test_a_stop_string_is_reported_once(self, make):
        processor, followed = make(a={"stop": ["b"]}, b={})
        processor.process([followed["a"].event(0)])
        step = processor.process([followed["a"].event(1), followed["b"].event(1)])
        assert step.stopped == [("a", "b")]
        assert [o.finished for o in step.outputs] == [True, False]
        processor.commit()
        assert processor.roll_back() == [followed["b"].request]
        again = processor.process([followed["a"].event(2)])
        assert again == ([], [])

    def test_a_stop_string_in_the_last_token_is_not_reported(self, make):
        processor, followed = make(a={"stop": ["b"]})
        step = processor.process([followed["a"].event(1, FinishReason.LENGTH)])
        assert step.stopped == []
        done = step.outputs[0].outputs[0]
        assert (done.finish_reason, done.stop_reason, done.text) == ("stop", "b", "")

    def test_a_delta_at_the_end_may_bring_text_without_tokens(self, make):
        kind = RequestOutputKind.DELTA
        processor, followed = make(a={"output_kind": kind, "stop": ["bx"]})
        step = processor.process([followed["a"].event(1)])
        assert step.outputs[0].outputs[0].text == ""
        processor.commit()
        followed["a"].request.finish(FinishReason.ERROR, None)
        step = processor.process([TokenEvent(followed["a"].request, (), None)])
        done = step.outputs[0].outputs[0]
        assert (done.text, done.token_ids, done.finish_reason) == ("b", [], "error")

    def test_what_was_not_delivered_is_given_again(self, make):
        kind = RequestOutputKind.DELTA
        processor, followed = make(a={"output_kind": kind}, b={"stop": ["ab"]})
        processor.process([followed["a"].event(0), followed["b"].event(0)])
        processor.commit()
        lost = processor.process([followed["a"].event(1), followed["b"].event(1)])
        assert lost.stopped == [("b", "ab")]
        assert processor.roll_back() == [followed["a"].request, followed["b"].request]
        step = processor.restore()
        assert step.stopped == lost.stopped
        assert step.outputs == lost.outputs[1:]  # what goes on waits for its next token
        processor.commit()
        step = processor.process([followed["a"].event(2)])
        assert step.outputs[0].outputs[0].text == "bc"

    def test_a_failed_request_ends_without_a_token(self, make):
        processor, followed = make(a={})
        request = followed["a"].request
        request.finish(FinishReason.ERROR, None)
        step = processor.process([TokenEvent(request, (), None)])
        done = step.outputs[0].outputs[0]
        assert (done.token_ids, done.finish_reason) == ([], "error")

    def test_events_of_requests_that_are_gone_are_ignored(self, make, letters):
        processor, followed = make(a={}, b={})
        processor.discard("a")
        processor.discard("unknown")
        stranger = Followed(letters, name="b")
        events = [followed["a"].event(0), stranger.event(0)]
        assert processor.process(events) == ([], [])

    def test_restore_covers_every_request(self, make):
        processor, followed = make(a={}, b={"logprobs": 1})
        processor.process([followed["a"].event(0), followed["b"].event(0)])
        followed["a"].event(1)
        followed["b"].event(1)
        processor.roll_back()
        processor.restore()
        assert followed["a"].request.num_output_tokens == 2
        assert followed["b"].request.num_output_tokens == 1
        step = processor.process([followed["a"].event(2), followed["b"].event(1)])
        assert [o.outputs[0].text for o in step.outputs] == ["abc", "ab"]

    @pytest.fixture
    def make_group(self, letters):
        """Returns a processor with a group of two, and their requests' stand-ins."""

        def make(**options):
            processor = OutputProcessor(letters)
            members = [
                Followed(letters, name=f"{i}_g", n=2, **options) for i in range(2)
            ]
            requests = [member.request for member in members]
            processor.add("g", requests, "hi", members[0].params)
            return processor, *members

        return make

    def test_a_group_ends_with_its_last_member(self, make_group):
        processor, a, b = make_group(output_kind=RequestOutputKind.FINAL_ONLY)
        step = processor.process([b.event(1, FinishReason.STOP, 1), a.event(0)])
        assert step.outputs == []
        processor.commit()
        assert processor.has("g")
        assert processor.roll_back() == [a.request]  # the other's end is known
        a.restore()
        step = processor.process([a.event(2, FinishReason.LENGTH)])
        (output,) = step.outputs
        assert (output.request_id, output.finished) == ("g", True)
        assert [done.index for done in output.outputs] == [0, 1]
        assert [done.token_ids for done in output.outputs] == [[0, 2], [1]]
        assert [done.finish_reason for done in output.outputs] == ["length", "stop"]
        assert not processor.has("g")
        processor.commit()
        assert processor.roll_back() == []
        assert processor.request_ids("g") == []

    def test_members_of_a_group_are_streamed_one_by_one(self, make_group):
        processor, a, b = make_group(output_kind=RequestOutputKind.DELTA)
        step = processor.process([a.event(0), b.event(1, FinishReason.LENGTH)])
        seen = [
            (o.outputs[0].index, o.outputs[0].text, o.finished) for o in step.outputs
        ]
        assert seen == [(0, "a", False), (1, "b", False)]
        processor.commit()
        (output,) = processor.process([a.event(2, FinishReason.LENGTH)]).outputs
        assert (output.outputs[0].text, output.finished) == ("c", True)

    def test_a_discarded_group_is_forgotten_whole(self, make_group):
        processor, a, b = make_group()
        assert processor.request_ids("g") == ["0_g", "1_g"]
        processor.discard("g")
        assert processor.process([a.event(0), b.event(1)]) == ([], [])
        assert processor.roll_back() == []
