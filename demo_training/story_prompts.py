"""What each story is asked to be about: everything follows from the story's number."""

import dataclasses
import random

SYSTEM = "You write short stories for small children."

EXAMPLE_REQUEST = "Write a short story about a duck named Bella, a pond and sharing."
EXAMPLE = (
    "Once upon a time, there was a little duck named Bella. One day, she found some "
    "bread by the pond. Then she saw a small duck who was hungry. Bella gave him half "
    'of the bread. "Thank you!" said the small duck. From that day on, they were '
    "friends."
)
"""Shows the model what a story is; it is not among the stories."""

ANIMALS = (
    "fox", "rabbit", "bear", "mouse", "cat", "dog", "owl", "frog", "duck", "hedgehog",
    "squirrel", "turtle", "bird", "pony", "lamb", "kitten", "puppy", "bee",
)  # fmt: skip
_CHILDREN = ("girl", "boy")
_ANIMAL_NAMES = (
    "Pip", "Max", "Coco", "Benny", "Ruby", "Tilly", "Oscar", "Daisy", "Hazel", "Milo",
    "Poppy", "Toby", "Rosie", "Sunny", "Olive", "Finn",
)  # fmt: skip
_GIRLS = ("Lily", "Mia", "Anna", "Emma", "Lucy", "Sara", "Nina", "Ella")
_BOYS = ("Tom", "Ben", "Leo", "Sam", "Jack", "Tim", "Noah", "Theo")
_PLACES = (
    "in a forest", "by the sea", "on a farm", "near a river", "in a small village",
    "in a garden", "on a hill", "by a lake", "in a little house", "in a big tree",
    "in a meadow", "in a town",
)  # fmt: skip
_THINGS = (
    "a red ball", "a kite", "a little boat", "a lost key", "a cake", "an old map",
    "a lantern", "a big apple", "a blue hat", "a drum", "a warm coat", "a shiny stone",
    "a flower", "a box", "a bell", "a basket", "a book", "a star", "a seed",
    "a wooden bridge", "a snowman", "a shell", "a broken wheel", "a song",
)  # fmt: skip
_LESSONS = (
    "being kind", "sharing", "being brave", "telling the truth", "helping a friend",
    "being patient", "saying sorry", "trying again", "being careful",
    "saying thank you", "making a new friend", "not giving up",
)  # fmt: skip
_OPENINGS = (
    "Once upon a time, there was a little {who} named {name}.",
    "Once upon a time, a little {who} named {name} lived {place}.",
    "Once upon a time, {place}, there lived a {who} called {name}.",
    "One day, a {who} named {name} found {thing}.",
    "One morning, {name} the {who} woke up early.",
    "There was once a {who} named {name} who lived {place}.",
    "{name} was a little {who} who loved {thing}.",
    "Once upon a time",
)


@dataclasses.dataclass(frozen=True, slots=True)
class StoryPrompt:
    """A request for one story.

    Attributes:
      who: an animal, "girl" or "boy".
      name: of the one that the story is about.
      request: what the user asks.
      opening: the first words of the story, given to the model.
    """

    who: str
    name: str
    request: str
    opening: str

    def messages(self) -> list[dict[str, str]]:
        """Return the conversation whose last message is to be continued."""
        return [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": EXAMPLE_REQUEST},
            {"role": "assistant", "content": EXAMPLE},
            {"role": "user", "content": self.request},
            {"role": "assistant", "content": self.opening},
        ]


def story_prompt(number: int) -> StoryPrompt:
    """Return the prompt of story `number`; the same one on every machine."""
    draw = random.Random(number)
    who = draw.choice(_CHILDREN if draw.random() < 0.3 else ANIMALS)
    words = {
        "who": who,
        "name": draw.choice(names_of(who)),
        "place": draw.choice(_PLACES),
        "thing": draw.choice(_THINGS),
    }
    lesson = draw.choice(_LESSONS)
    request = (
        "Write a short story about a {who} named {name}, {thing} and " + lesson + "."
    )
    opening = draw.choice(_OPENINGS)
    return StoryPrompt(
        words["who"], words["name"], request.format(**words), opening.format(**words)
    )


def names_of(who: str) -> tuple[str, ...]:
    """Return the names that a girl, a boy or an animal may have."""
    return {"girl": _GIRLS, "boy": _BOYS}.get(who, _ANIMAL_NAMES)
