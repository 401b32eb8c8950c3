"""The stories as arrays of token ids: which are held out, and how they fill rows."""

import json
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tokenizers import Tokenizer

from demo_training.story_prompts import ANIMALS, names_of, story_prompt

BOS, EOS = 0, 1
_HELD_OUT_EVERY = 20  # 5 %
_EXCHANGEABLE = tuple(animal for animal in ANIMALS if animal != "owl")  # an owl


class Story(NamedTuple):
    """One story.

    Attributes:
      number: of the prompt that it was written for.
      text: the story.
      request: what it was asked to be about.
    """

    number: int
    text: str
    request: str


class Rows(NamedTuple):
    """Token ids and whether each is learnt.

    Attributes:
      ids: int32 `[N, S]`; each row starts with BOS.
      is_target: float32 `[N, S]`; 0 for requests, which are read but not learnt.
    """

    ids: np.ndarray
    is_target: np.ndarray


def read_stories(path: Path) -> tuple[list[Story], list[Story]]:
    """Return the stories to learn from and those held out, by their numbers."""
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    stories = [
        Story(line["number"], line["text"], story_prompt(line["number"]).request)
        for line in lines
    ]
    held_out = [story for story in stories if story.number % _HELD_OUT_EVERY == 0]
    return [s for s in stories if s.number % _HELD_OUT_EVERY], held_out


def vary(story: Story, rng: np.random.Generator) -> Story:
    """Return the story with another name, and half of the time another animal.

    There are few stories; so they teach what may stand where, not who did what.
    """
    prompt = story_prompt(story.number)
    change = {prompt.name: str(rng.choice(names_of(prompt.who)))}
    if prompt.who in _EXCHANGEABLE and rng.random() < 0.5:
        change[prompt.who] = str(rng.choice(_EXCHANGEABLE))
    words = re.compile(rf"\b({'|'.join(change)})\b")

    def exchange(text: str) -> str:
        return words.sub(lambda match: change[match.group()], text)

    return Story(story.number, exchange(story.text), exchange(story.request))


class Encoded(NamedTuple):
    """A story's ids, with and without what was asked before it."""

    plain: np.ndarray
    asked: np.ndarray
    num_asked: int

    @classmethod
    def of(cls, story: Story, tokenizer: Tokenizer) -> "Encoded":
        """Encode a story; its request stands on a line before it."""

        def encode(text: str) -> list[int]:
            return tokenizer.encode(text, add_special_tokens=False).ids

        request = encode(story.request + "\n")
        ids = encode(story.text)
        return cls(
            np.array([BOS, *ids, EOS], np.int32),
            np.array([BOS, *request, *ids, EOS], np.int32),
            len(request),
        )


def pack(encoded: list[Encoded], length: int, rng: np.random.Generator) -> Rows:
    """Fill rows with whole stories in random order, half of them with their request.

    Every row starts with a story; the last story of a row is cut where the row ends,
    and what does not fit is left for another epoch.

    Args:
      encoded: the stories.
      length: tokens of a row, S.
      rng: decides the order, and which stories get their request.
    """
    rows, targets = [], []
    ids, is_target = np.zeros(0, np.int32), np.zeros(0, np.float32)
    for index in rng.permutation(len(encoded)):
        story = encoded[index]
        with_request = rng.random() < 0.5
        more = story.asked if with_request else story.plain
        wanted = np.ones(len(more), np.float32)
        wanted[0] = 0  # BOS
        if with_request:
            wanted[1 : 1 + story.num_asked] = 0
        ids, is_target = np.append(ids, more), np.append(is_target, wanted)
        if len(ids) >= length:
            rows.append(ids[:length])
            targets.append(is_target[:length])
            ids, is_target = np.zeros(0, np.int32), np.zeros(0, np.float32)
    if not rows:
        raise ValueError(f"too few stories to fill a row of {length} tokens")
    return Rows(np.stack(rows), np.stack(targets))


def one_a_row(encoded: list[Encoded], length: int) -> Rows:
    """Return each story in a row of its own, without its request, padded with EOS."""
    ids = np.full((len(encoded), length), EOS, np.int32)
    is_target = np.zeros((len(encoded), length), np.float32)
    for row, story in enumerate(encoded):
        used = min(length, len(story.plain))
        ids[row, :used] = story.plain[:used]
        is_target[row, 1:used] = 1
    return Rows(ids, is_target)
