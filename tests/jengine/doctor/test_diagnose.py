import dataclasses
import sys

from jengine.bench.machine import describe_machine
from jengine.doctor.device import DeviceFacts
from jengine.doctor.diagnose import Found, diagnose, make_report
from jengine.doctor.folder import look_at_folder
from jengine.doctor.nvidia import NvidiaGpu
from jengine.doctor.software import find_software

CPU = DeviceFacts(platform="cpu", devices=("cpu",) * 2, pool_bytes=2**30)


def sections(device, environment=None, *, gpus=(), cache=None):
    found = Found(
        machine=describe_machine(),
        software=find_software(),
        gpus=gpus,
        device=device,
        cache=cache,
    )
    report = make_report(found, environment or {})
    return {
        title: {fact.name: fact.value for fact in facts}
        for title, facts in report.sections.items()
    }


def test_this_machine_as_it_is(tmp_path):
    (tmp_path / "program").write_bytes(b"x" * 2**20)
    seen = []

    def probe(environment):
        seen.append(environment)
        return DeviceFacts(platform="cpu", devices=("cpu",), cache=str(tmp_path))

    report = diagnose({"JAX_PLATFORMS": "cpu"}, probe=probe)
    assert seen == [{"JAX_PLATFORMS": "cpu"}]
    assert report.can_run
    found = report.to_dict()
    assert found["compiled programs"]["folder"] == str(tmp_path)
    assert found["compiled programs"]["size"] == "1 MiB in 1 files"
    assert found["environment"] == {"JAX_PLATFORMS": "cpu"}


def test_devices_and_choices():
    found = sections(CPU)
    assert found["device"]["platform"] == "cpu"
    assert found["device"]["devices"] == "2: cpu"
    assert found["device"]["a kernel of Pallas"] == "runs, interpreted"
    assert found["choices"]["attention"] == "xla"


def test_nothing_is_chosen_where_jax_does_not_start():
    found = sections(DeviceFacts(error="no device"))
    assert found["device"] == {"jax": "does not start: no device"}
    assert found["choices"] == {}


def test_a_plugin_that_nobody_needs():
    idle = dataclasses.replace(CPU, plugin="RuntimeError: no cuDNN")
    assert sections(idle)["device"]["plugin"] == "not used: RuntimeError: no cuDNN"


def test_gpus_of_the_driver():
    card = NvidiaGpu("NVIDIA H200", "580.1", "143771", "12", "9.0")
    line = sections(CPU, gpus=[card])["machine"]["GPU"]
    assert line == "NVIDIA H200, 143771 MiB, 12 MiB in use, driver 580.1"


def test_a_folder_that_jax_was_told_of(tmp_path):
    told = DeviceFacts(
        platform="cpu", devices=("cpu",), cache="own", jax_cache=str(tmp_path)
    )
    found = sections(told, cache=look_at_folder(tmp_path))["compiled programs"]
    assert found["folder"] == str(tmp_path)


def test_without_psutil_memory_is_unknown(monkeypatch):
    monkeypatch.setitem(sys.modules, "psutil", None)
    assert sections(CPU)["machine"]["memory"] == "unknown"


def test_no_secret_is_shown():
    secret = {"HF_TOKEN": "x", "PATH": "y", "HTTPS_PROXY": "z", "XLA_FLAGS": "--a=b"}
    assert sections(CPU, secret)["environment"] == {"XLA_FLAGS": "--a=b"}
