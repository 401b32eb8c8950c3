"""Which of the written stories are good enough to learn from, and how much of each.

    python -m demo_training.clean_stories --stories stories.jsonl --out clean.jsonl

A model of 135M parameters wanders off and repeats itself. A story is kept up to its
last whole sentence before that; short remains and stories about other things than
stories are dropped.
"""

import argparse
import collections
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

MIN_WORDS = 40
_PLAIN = str.maketrans(
    {
        "\N{RIGHT SINGLE QUOTATION MARK}": "'",
        "\N{LEFT SINGLE QUOTATION MARK}": "'",
        "\N{LEFT DOUBLE QUOTATION MARK}": '"',
        "\N{RIGHT DOUBLE QUOTATION MARK}": '"',
        "\N{EN DASH}": "-",
        "\N{EM DASH}": "-",
        "\N{HORIZONTAL ELLIPSIS}": "...",
        "\t": " ",
    }
)
_ALLOWED = re.compile(r"[A-Za-z0-9 .,!?;:'\"()\n-]+")
_SENTENCE = re.compile(r'.+?[.!?]+["\')]*(?=\s|$)', re.DOTALL)
_OFF_TOPIC = re.compile(
    r"\b(AI|assistant|chatbot|language model|this story|the story|a story about|moral"
    r"|chapter|title|prompt|user|sex\w*|kill\w*|died?|dead|murder\w*|blood\w*|gun|drunk"
    r"|beer|wine|hell|God|Jesus|church|school project|COVID\w*|America\w*|Peppa)\b",
    re.IGNORECASE,
)


def main() -> None:
    """Read all stories, write the good ones, say how many were dropped and why."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--stories", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    lines = [json.loads(line) for line in asked.stories.read_text().splitlines()]
    reasons = collections.Counter[str]()
    kept = list(clean_all(lines, reasons))
    asked.out.write_text("".join(json.dumps(line) + "\n" for line in kept))
    words = sum(len(line["text"].split()) for line in kept)
    print(
        f"{len(kept)} of {len(lines)} stories kept, {words} words; dropped: {reasons}"
    )


def clean_all(
    lines: Iterable[dict], reasons: collections.Counter[str]
) -> Iterator[dict]:
    """Yield the good stories, each once, ordered by their numbers.

    Args:
      lines: `number` and `text` of each story.
      reasons: counts why stories were dropped.
    """
    seen = set()
    for line in sorted(lines, key=lambda line: line["number"]):
        text = clean(line["text"])
        reason = why_bad(text)
        if reason is None and text in seen:
            reason = "twice"
        if reason is not None:
            reasons[reason] += 1
            continue
        seen.add(text)
        yield {"number": line["number"], "text": text}


def clean(text: str) -> str:
    """Return the sentences before the first that is not whole or repeats itself."""
    text = re.sub(r"\s*\n\s*", "\n\n", text.translate(_PLAIN).strip())
    text = re.sub(r" {2,}", " ", text)
    kept, seen, end = [], set(), 0
    for match in _SENTENCE.finditer(text):
        sentence = " ".join(match.group().lower().split())
        if sentence in seen and len(sentence.split()) > 2:
            break
        if _circles(sentence.split()) or not _ALLOWED.fullmatch(match.group()):
            break
        seen.add(sentence)
        kept.append(text[end : match.end()])
        end = match.end()
    return _close_quote("".join(kept))


def why_bad(text: str) -> str | None:
    """Return why a story, after `clean`, is not to be used; None if it is good."""
    words = text.lower().split()
    if len(words) < MIN_WORDS:
        return "short"
    if _OFF_TOPIC.search(text):
        return "off topic"
    triples = list(zip(words, words[1:], words[2:], strict=False))
    if len(set(triples)) < 0.85 * len(triples):
        return "monotonous"
    return None


def _circles(words: list[str]) -> bool:
    """Whether a sentence says the same four words three times, or is endless."""
    fours = collections.Counter(
        zip(words, words[1:], words[2:], words[3:], strict=False)
    )
    return len(words) > 45 or max(fours.values(), default=0) > 2


def _close_quote(text: str) -> str:
    """Close the quotation that was cut off, if the last paragraph has one."""
    last = text.rpartition("\n\n")[2]
    return text + '"' if last.count('"') % 2 else text


if __name__ == "__main__":
    main()
