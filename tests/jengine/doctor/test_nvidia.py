import pytest

from jengine.doctor.nvidia import NvidiaGpu, list_gpus, newest_cuda, parse_gpus

TWO = """\
NVIDIA H200, 575.57.08, 143771, 1024, 9.0
NVIDIA A100-SXM4-80GB, 575.57.08, 81920, 0, 8.0
"""


def gpu(driver):
    return NvidiaGpu("card", driver, "1", "0", "9.0")


def test_lines_of_the_tool():
    first, second = parse_gpus(TWO)
    assert first == NvidiaGpu("NVIDIA H200", "575.57.08", "143771", "1024", "9.0")
    assert second.name == "NVIDIA A100-SXM4-80GB"
    assert parse_gpus("No devices were found\n") == []


def test_the_tool_is_asked(tmp_path):
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\ncat <<'X'\n{TWO}X\n")
    tool.chmod(0o755)
    assert [one.name for one in list_gpus(str(tool))] == [
        "NVIDIA H200",
        "NVIDIA A100-SXM4-80GB",
    ]


@pytest.mark.parametrize("body", ["exit 9", "echo 'driver is not loaded'"])
def test_no_answer_is_no_gpu(tmp_path, body):
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{body}\n")
    tool.chmod(0o755)
    assert list_gpus(str(tool)) == []
    assert list_gpus(str(tmp_path / "no-such-tool")) == []


@pytest.mark.parametrize(
    ("driver", "cuda"),
    [
        ("520.1", None),
        ("525.60.13", 12),
        ("579.9", 12),
        ("580.65", 13),
        ("[N/A]", None),
    ],
)
def test_the_driver_says_which_cuda_runs(driver, cuda):
    assert newest_cuda([gpu(driver)]) == cuda
    assert newest_cuda([]) is None
