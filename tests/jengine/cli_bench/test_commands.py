import pytest

from jengine import cli


def test_help_lists_all_commands(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", "--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    for name in ("latency", "throughput", "serve", "roofline", "sweep", "compare"):
        assert name in out


@pytest.mark.parametrize("name", ["latency", "serve", "sweep"])
def test_each_command_explains_itself(name, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", name, "--help"])
    assert ended.value.code == 0
    assert "--max-num-seqs" in capsys.readouterr().out  # the engine's options too


def test_a_flag_of_one_backend_says_so(capsys):
    with pytest.raises(SystemExit):
        cli.main(["bench", "serve", "--help"])
    out = " ".join(capsys.readouterr().out.split())
    for note in ("server: not for --backend jengine", "a server's must be named"):
        assert note in out


def test_a_command_is_needed(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench"])
    assert ended.value.code == 2
