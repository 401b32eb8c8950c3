import importlib.metadata

import jengine
from jengine.bench.compare.engines.jengine_engine import load


def test_ids_are_those_of_transformers(f2_dir, f2_greedy, small_options):
    names = ("max_num_batched_tokens", "num_gpu_blocks_override")
    extra = {name: small_options[name] for name in names}
    extra["compilation_cache_dir"] = small_options["compilation_cache_dir"]
    engine = load(
        {
            "folder": str(f2_dir),
            "dtype": "float32",
            "max_num_seqs": 8,
            "max_model_len": 256,
            "engine": extra,
        }
    )
    assert engine.versions() == {
        "version": jengine.__version__,
        "versions": {"jax": importlib.metadata.version("jax")},
    }
    some = f2_greedy[:3]
    found = engine.generate([one.prompt for one in some], 5)
    assert [len(ids) for ids in found] == [5, 5, 5]
    for ids, one in zip(found, some, strict=True):
        assert ids[: len(one.expected(5))] == one.expected(5)
