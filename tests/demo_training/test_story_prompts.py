import pytest

pytest.importorskip("demo_training.story_prompts", reason="only in a checkout")

from demo_training.story_prompts import EXAMPLE, story_prompt


def test_a_prompt_follows_from_its_number():
    assert story_prompt(7) == story_prompt(7)
    assert len({story_prompt(number) for number in range(500)}) > 490


@pytest.mark.parametrize("number", range(0, 60, 7))
def test_a_prompt_says_what_the_story_is_about_and_begins_it(number):
    prompt = story_prompt(number)
    assert prompt.request.startswith("Write a short story about a ")
    assert not set("{}") & set(prompt.request + prompt.opening)
    system, *_, request, opening = prompt.messages()
    assert (system["role"], opening["role"]) == ("system", "assistant")
    assert (request["content"], opening["content"]) == (prompt.request, prompt.opening)
    assert EXAMPLE not in prompt.request + prompt.opening
