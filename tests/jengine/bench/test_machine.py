import json
import os
import subprocess

import pytest

import jengine
from jengine.bench.machine import (
    allowed_cpus,
    cpu_count,
    cpu_model,
    describe_machine,
    git_commit,
)


def test_a_description_is_plain_json_and_one_line():
    machine = describe_machine()
    plain = json.loads(json.dumps(machine.to_dict()))
    assert plain["versions"]["jengine"] == jengine.__version__
    assert plain["cores"] == cpu_count() == len(allowed_cpus()) >= 1
    assert plain["memory_bytes"] > 2**20
    assert "\n" not in str(machine)
    assert machine.cpu in str(machine)


def test_cpu_model_is_the_kernels_word(tmp_path):
    info = tmp_path / "cpuinfo"
    info.write_text("processor : 0\nmodel name\t: Fast   CPU @ 1 GHz\n")
    assert cpu_model(info) == "Fast CPU @ 1 GHz"
    assert cpu_model(tmp_path / "nothing")


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="Linux only")
def test_only_cpus_that_may_be_used_count():
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {max(before)})
        assert allowed_cpus() == [max(before)]
    finally:
        os.sched_setaffinity(0, before)


def test_commit_of_a_checkout(tmp_path):
    def git(*arguments):
        command = [
            "git",
            "-C",
            str(tmp_path),
            "-c",
            "user.name=a",
            "-c",
            "user.email=b",
        ]
        done = subprocess.run([*command, *arguments], capture_output=True, check=True)
        return done.stdout.decode().strip()

    git("init", "-q")
    ours, others = tmp_path / "ours", tmp_path / "others"
    for folder in (ours, others):
        folder.mkdir()
        (folder / "__init__.py").write_text("")
    git("add", "ours")
    git("commit", "-qm", "first")
    head = git("rev-parse", "HEAD")
    assert git_commit(ours) == head
    assert git_commit(others) is None  # installed into a folder of the checkout
    (ours / "__init__.py").write_text("changed")
    assert git_commit(ours) == head + "+"
    assert git_commit(tmp_path.parent) is None
