import pytest

from jengine.bench.gpu_check.compile_ahead import CompileAhead


class Lowered:
    """What lowering returns; its log says in which order things were done."""

    def __init__(self, name, log):
        self.name, self.log = name, log
        log.append(f"lower {name}")

    def compile(self):
        self.log.append(f"compile {self.name}")
        if self.name == "bad":
            raise ValueError("spills")
        return self.name.upper


def lowerings(log, *names):
    return {name: lambda name=name: Lowered(name, log) for name in names}


def test_programs_come_in_any_order_and_each_once():
    log = []
    ahead = CompileAhead(lowerings(log, "a", "b", "c", "d"), threads=2)
    assert [ahead.get(name).program() for name in "acbd"] == ["A", "C", "B", "D"]
    assert sorted(log) == sorted(
        f"{what} {name}" for name in "abcd" for what in ("lower", "compile")
    )


def test_no_more_than_its_threads_are_under_way():
    log = []
    ahead = CompileAhead(lowerings(log, *"abcdef"), threads=3)
    ahead.get("a")
    assert [line for line in log if "lower" in line] == [
        "lower a",
        "lower b",
        "lower c",
    ]


def test_one_at_a_time_nothing_is_done_before_it_is_asked_for():
    log = []
    ahead = CompileAhead(lowerings(log, "a", "b"), threads=1)
    assert log == []
    assert ahead.get("b").program() == "B"
    assert log == ["lower b", "compile b"]
    assert ahead.get("a").program() == "A"


def test_an_error_belongs_to_the_program_that_is_asked_for():
    def refuse():
        raise NotImplementedError("no such dtype")

    log = []
    ahead = CompileAhead({"a": refuse, **lowerings(log, "bad", "c")}, threads=4)
    assert ahead.get("c").program() == "C"
    with pytest.raises(NotImplementedError, match="no such dtype"):
        ahead.get("a")
    with pytest.raises(ValueError, match="spills"):
        ahead.get("bad")
