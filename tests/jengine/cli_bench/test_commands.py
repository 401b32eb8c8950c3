import pytest

from jengine import cli


def test_help_lists_all_commands(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", "--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    for name in ("compare",):
        assert name in out


def test_a_command_is_needed(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench"])
    assert ended.value.code == 2
