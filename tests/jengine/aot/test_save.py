"""Programs on disk; run on the CPU, for want of another device."""

import dataclasses
import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from jengine.aot.save import ProgramFolder, describe, folder_name
from jengine.aot.survey import plan_survey
from jengine.errors import ConfigError

LOAD = """
import pathlib, sys
import jax.numpy as jnp
from jengine.aot.save import ProgramFolder

program = ProgramFolder(pathlib.Path(sys.argv[1])).load("twice", (0,), 0)
print(program(jnp.arange(3, dtype=jnp.int32)).tolist())
"""


@pytest.fixture(scope="module")
def survey(make_request):
    return plan_survey(make_request())


def keeping(survey, folder):
    request = dataclasses.replace(survey.request, save=str(folder))
    return survey._replace(request=request)


def test_nothing_is_kept_unless_asked_for(survey):
    assert ProgramFolder.of(survey) is None


def test_the_folder_says_what_it_holds(survey, tmp_path):
    folder = ProgramFolder.of(keeping(survey, tmp_path / "new"))
    assert folder is not None
    assert folder.path.parent == tmp_path / "new"
    assert folder.path.name.startswith(f"jax-{jax.__version__}-h200-")
    written = json.loads((folder.path / "configuration.json").read_text())
    assert written["config"]["hidden_size"] == 4096
    assert written["num_blocks"] == survey.num_blocks


def test_a_folder_that_cannot_be_made_is_refused(survey, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"--save is '.*file'; allowed: a folder"):
        ProgramFolder.of(keeping(survey, tmp_path / "file"))


def test_what_programs_depend_on_makes_another_folder(survey, make_request):
    name = folder_name(describe(survey))
    assert folder_name(describe(survey)) == name
    others = [
        make_request(target="h100"),
        make_request(options={"max_num_seqs": 8}),
        make_request(options={"block_size": 32}),
        make_request(tensor_parallel_size=2),
        make_request(changes={"rope_theta": 10000.0}),
    ]
    names = [folder_name(describe(plan_survey(request))) for request in others]
    assert len({name, *names}) == 6


def test_a_saved_program_runs_in_another_process(tmp_path):
    twice = jax.jit(lambda x: 2 * x).lower(jnp.arange(3, dtype=jnp.int32)).compile()
    ProgramFolder(tmp_path).save("twice", twice)
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "[0, 2, 4]\n", done.stderr
