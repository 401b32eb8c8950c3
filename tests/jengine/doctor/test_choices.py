import pytest

from jengine.doctor.choices import list_choices
from jengine.doctor.device import DeviceFacts

CPU = DeviceFacts(platform="cpu", devices=("cpu",), pool_bytes=2**30)
H200 = DeviceFacts(
    platform="gpu",
    devices=("NVIDIA H200",),
    compute_capability=(9, 0),
    memory_bytes=140 * 2**30,
    pool_bytes=128 * 2**30,
)
T4 = DeviceFacts(platform="gpu", devices=("Tesla T4",), compute_capability=(7, 5))
OTHER = DeviceFacts(platform="tpu", devices=("TPU v6",))


def choices(device):
    return {fact.name: fact for fact in list_choices(device)}


@pytest.mark.parametrize(
    ("device", "backend", "why"),
    [
        (CPU, "xla", "a CPU would interpret them"),
        (H200, "pallas", "9.0 has at least 8.0"),
        (T4, "xla", "need compute capability 8.0, and this has 7.5"),
        (OTHER, "xla", "for NVIDIA GPUs"),
    ],
)
def test_attention_and_its_reason(device, backend, why):
    found = choices(device)["attention"]
    assert found.value == backend
    assert why in found.why


def test_dtypes():
    assert choices(CPU)["dtype"].value == "float32"
    own = choices(H200)["dtype"].value
    assert own == "the checkpoint's own; bfloat16 for float32"


def test_defaults_of_the_device():
    cpu, gpu = choices(CPU), choices(H200)
    assert (cpu["max_num_seqs"].value, gpu["max_num_seqs"].value) == ("128", "256")
    assert cpu["max_num_batched_tokens"].value == "2048"
    assert cpu["programs are compiled"].value == "when they are first needed"
    assert gpu["programs are compiled"].value == "at the start"
    assert cpu["memory for keys and values"].value == "1.0 GiB"
    assert gpu["memory for keys and values"].value == "128.0 GiB less the weights"
