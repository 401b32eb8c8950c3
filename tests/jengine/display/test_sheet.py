from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from jengine.display.sheet import sheet

TEXTS = st.text(st.characters(exclude_characters="\r\0", exclude_categories=["Cs"]))


class Reader(HTMLParser):
    """Collects what a browser would show, and the elements that it met."""

    def __init__(self):
        super().__init__()
        self.tags, self.texts = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.texts.append(data)


def read(html):
    reader = Reader()
    reader.feed(html)
    reader.close()
    return reader


def test_columns_are_aligned_and_texts_of_several_lines_stay_in_theirs():
    found = sheet("t", ["a", "bb"], [["long", "x\ny"], [None, 1]], ["note"]).to_text()
    assert found == "\n".join(
        ["t", "  a     bb", "  long  x", "        y", "  -     1", "note"]
    )


def test_a_sheet_without_rows_is_its_title_and_notes():
    made = sheet("t", notes=["n"])
    assert made.to_text() == "t\nn"
    assert "table" not in made.to_html()


@given(TEXTS, TEXTS, TEXTS)
def test_no_text_becomes_markup(title, cell, note):
    made = sheet(title, ["h"], [[cell]], [note])
    reader = read(made.to_html())
    assert set(reader.tags) <= {"div", "b", "table", "thead", "tbody", "tr"} | {
        "th",
        "td",
        "pre",
    }
    shown = "".join(reader.texts)
    assert shown == title + "h" + (cell or "-") + note


def test_formulas_are_left_alone():
    # A notebook would set what stands between two dollars as mathematics.
    assert "mathjax_ignore" in sheet("$5 and $6").to_html()
