import pytest

from jengine.bench.compare.cpu_load import CpuTimes
from jengine.cli_bench import company


@pytest.mark.parametrize(("busy", "words"), [(14.0, "used 1.3 CPUs"), (2.0, None)])
def test_others_are_mentioned(monkeypatch, capsys, busy, words):
    """In ten seconds the machine was busy for `busy`, one second of it by us."""
    readings = iter([CpuTimes(0.0, 0.0, 0.0), CpuTimes(10.0, busy, 1.0)])
    monkeypatch.setattr(company, "read_cpu_times", lambda: next(readings))
    with company.watching_others():
        pass
    err = capsys.readouterr().err
    assert (words in err) if words else err == ""


def test_an_error_goes_through():
    with pytest.raises(KeyError), company.watching_others():
        raise KeyError
