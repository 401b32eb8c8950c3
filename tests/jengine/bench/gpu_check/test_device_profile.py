import jax
import pytest

from jengine.bench.gpu_check.device_profile import (
    DeviceEvent,
    busy_ns,
    device_events,
    profile_steps,
    summarise,
    trace_device,
)
from jengine.bench.gpu_check.recorder import SkipCaseError

# Two steps on one stream, as jaxlib's tracer writes them: planes of the host and of
# the GPU, kernels and copies, and a derived line, which is no stream.
TRACE = """
planes {
  name: "/host:CPU"
  lines { name: "python" events { metadata_id: 1 offset_ps: 0 duration_ps: 9000000 } }
  event_metadata { key: 1 value { id: 1 name: "step" } }
}
planes {
  name: "/device:GPU:0"
  lines {
    name: "Stream #13(Compute)" timestamp_ns: 1000
    events { metadata_id: 1 offset_ps: 0 duration_ps: 3000000 }
    events { metadata_id: 2 offset_ps: 4000000 duration_ps: 1000000 }
    events { metadata_id: 1 offset_ps: 10000000 duration_ps: 3000000 }
    events { metadata_id: 2 offset_ps: 14000000 duration_ps: 1000000 }
  }
  lines {
    name: "Stream #14(MemcpyD2H)" timestamp_ns: 1000
    events { metadata_id: 3 offset_ps: 2000000 duration_ps: 4000000 }
    events { metadata_id: 3 offset_ps: 12000000 duration_ps: 4000000 }
  }
  lines {
    name: "XLA Modules" timestamp_ns: 1000
    events { metadata_id: 2 offset_ps: 0 duration_ps: 90000000 }
  }
  event_metadata { key: 1 value { id: 1 name: "paged_attention_decode" } }
  event_metadata { key: 2 value { id: 2 name: "gemm_fusion_dot" } }
  event_metadata { key: 3 value { id: 3 name: "MemcpyD2H" } }
}
"""


@pytest.fixture
def events():
    data = jax.profiler.ProfileData.from_text_proto(TRACE)
    return device_events(data)


def test_only_what_streams_of_a_gpu_did_counts(events):
    names = [event.name for event in events]
    assert names == 2 * ["paged_attention_decode", "MemcpyD2H", "gemm_fusion_dot"]
    assert [event.is_copy for event in events] == 2 * [False, True, False]
    assert [event.duration_ns for event in events] == 2 * [3000, 4000, 1000]


def test_a_step_has_its_share_of_launches_and_time(events):
    found = summarise(events, 2)
    assert found["launches_per_step"] == 2
    assert found["copies_per_step"] == 1
    # The copy runs beside both kernels, and one microsecond longer.
    assert found["device_busy_s_per_step"] == pytest.approx(6e-6)
    assert [kernel["name"] for kernel in found["kernels"]] == [
        "paged_attention_decode",
        "gemm_fusion_dot",
    ]
    assert found["kernels"][0]["s_per_step"] == pytest.approx(3e-6)
    assert found["kernels"][0]["launches_per_step"] == 1


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([], 0),
        ([(0, 5), (5, 5)], 10),
        ([(0, 10), (2, 3), (4, 20)], 24),
        ([(0, 1), (100, 1)], 2),
    ],
)
def test_time_that_several_share_counts_once(spans, expected):
    assert busy_ns([DeviceEvent("k", *span) for span in spans]) == expected


def test_without_a_gpu_the_fields_say_so():
    ran = []
    with pytest.raises(SkipCaseError, match="no kernels of a GPU"):
        trace_device(lambda: ran.append(jax.numpy.ones(3).sum()))
    assert len(ran) == 1
    found = profile_steps(lambda: ran.append(1), 1)
    assert list(found) == ["profile"]
    assert "no kernels of a GPU" in found["profile"]


def test_a_trace_that_breaks_off_leaves_the_profiler_usable():
    def fail():
        raise RuntimeError("CUPTI is not there")

    assert "CUPTI" in profile_steps(fail, 1)["profile"]
    assert "no kernels" in profile_steps(lambda: None, 1)["profile"]
