"""What is known of a survey before anything is compiled, and the order of the work."""

import dataclasses
from typing import Any

from jengine.aot.cost import step_work
from jengine.aot.request import Job
from jengine.aot.sizes import basis_of, checked, chosen, plainest, rows_of
from jengine.aot.survey import (
    Survey,
    context_of,
    layer_cost,
    program_kind,
    shallow,
    step_shape,
)
from jengine.runner.program_keys import (
    DecodeKey,
    ForwardKey,
    SampleKey,
    StepKey,
    program_name,
)


def describe_survey(survey: Survey) -> dict[str, Any]:
    """Return plain values: of the model, the card, the pool and each program."""
    model, target, resolved = survey.model, survey.target, survey.resolved
    rows = survey.buckets.max_rows
    return {
        "target": target.name,
        "model": survey.request.model,
        "device_kind": target.device_kind,
        "memory_bytes": target.memory_bytes,
        "memory_bandwidth": target.memory_bandwidth,
        "bf16_tflops": target.bf16_tflops,
        "tensor_parallel_size": survey.request.tensor_parallel_size,
        "dtype": resolved.dtype,
        "attention_backend": resolved.attention_backend,
        "gpu_memory_utilization": resolved.asked.gpu_memory_utilization,
        "parameters": survey.sizes.parameters,
        "weight_bytes": survey.weight_bytes,
        "num_layers": model.num_layers,
        "layers_compiled": shallow(model, survey.request.layers).num_layers,
        "layer": dataclasses.asdict(layer_cost(survey)),
        "kv_blocks": survey.num_blocks,
        "block_size": resolved.block_size,
        "kv_bytes": survey.kv_bytes,
        "kv_tokens": survey.pool_tokens,
        "max_model_len": survey.max_model_len,
        "max_num_seqs": resolved.max_num_seqs,
        "context": survey.request.context,
        "context_of_all_rows": context_of(survey, rows),
        "programs": [describe_program(survey, key) for key in survey.keys],
    }


def describe_program(survey: Survey, key: StepKey) -> dict[str, Any]:
    """Return a program's name and size, and what the roofline says of it.

    And its "basis", from which its other figures follow, if it is not compiled.
    """
    shape = step_shape(survey, key)
    devices = survey.request.tensor_parallel_size
    work = step_work(survey.sizes, shape, itemsize=survey.itemsize, devices=devices)
    target = survey.target
    seconds = work.seconds(target.memory_bandwidth, target.flops_per_s)
    tokens = shape.tokens or shape.logit_rows
    basis = basis_of(survey, key)
    return {
        "basis": None if basis is None else basis._asdict(),
        "name": program_name(key),
        "kind": program_kind(key),
        "tokens": tokens,
        "rows": rows_of(key),
        "context": shape.context,
        "kv_bytes": 0 if isinstance(key, SampleKey) else survey.kv_bytes,
        "bytes_moved": work.bytes_moved,
        "flops": work.flops,
        "roofline_ms": seconds * 1e3,
        "roofline_tokens_per_s": tokens / seconds,
    }


def jobs(survey: Survey) -> list[Job]:
    """Return what to compile, first what others will find in the kernel cache.

    Some of it is compiled as a check on what is concluded: the largest plain decode
    step and the largest mixed step at full depth, and what `sizes.checked` says.
    """
    if survey.request.only is not None:
        return list(survey.request.only)
    numbers = {*chosen(survey), *checked(survey)}
    is_shallow = shallow(survey.model, survey.request.layers) != survey.model
    full = not is_shallow
    order = sorted(
        (Job(number, full) for number in numbers),
        key=lambda job: _order(survey, job.number),
    )
    return order + [Job(number, True) for number in _proofs(survey) if is_shallow]


def _order(survey: Survey, number: int) -> tuple[bool, int, int]:
    """Put what is plain first, and not beside a variant that has its kernels."""
    key = survey.keys[number]
    return key != plainest(survey, key), _features(key), number


def _proofs(survey: Survey) -> list[int]:
    """Return the numbers of the largest greedy decode and the largest mixed step."""
    plain: list[Any] = [key for key in survey.keys if _features(key) == 0]
    decodes = [key for key in plain if isinstance(key, DecodeKey)]
    mixed = [key for key in plain if isinstance(key, ForwardKey)]
    largest = [max(keys, key=lambda k: k.bucket) for keys in (decodes, mixed)]
    return [survey.keys.index(key) for key in largest]


def _features(key: StepKey) -> int:
    """Count what a program does beyond the plainest of its size."""
    match key:
        case ForwardKey(bucket):
            return 1 if bucket.single_token_rows else 0
        case DecodeKey(_, mode) | SampleKey(_, mode):
            asked = (mode.random, mode.filtered, mode.masked, mode.num_logprobs is None)
            return sum(asked[:3]) + (not asked[3])
    raise AssertionError(key)
