"""The tokenizer of a GGUF file is the one that transformers makes of it."""

import pathlib
import struct
from typing import Any

import pytest

from jengine.errors import CheckpointError, UnsupportedError
from jengine.text.gguf_tokenizer import load_gguf_tokenizer
from jengine.text.tokenizer import load_tokenizer

TEXTS = (
    'The "described" 😀 你好',
    "<|im_start|>user\nhi<|im_end|>\n",
    "  1 2 345  \n\n\n x\t",
    "\x00ÿ한",
)


def packed(value: Any) -> bytes:
    """Write a value as GGUF does, its type first."""
    if isinstance(value, bool):
        return struct.pack("<IB", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + string(value)
    items = [packed(item) for item in value]
    header = struct.pack("<I", 9) + items[0][:4] + struct.pack("<Q", len(items))
    return header + b"".join(item[4:] for item in items)


def string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def write_gguf(file: pathlib.Path, metadata: dict[str, Any], version: int = 3) -> None:
    body = b"".join(string(name) + packed(value) for name, value in metadata.items())
    file.write_bytes(b"GGUF" + struct.pack("<IQQ", version, 0, len(metadata)) + body)


@pytest.fixture
def llama_metadata() -> dict[str, Any]:
    """A SentencePiece vocabulary of the kind that llama.cpp writes."""
    pieces = ["▁", "h", "i", "▁h", "▁hi", "hi"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *pieces]
    return {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [2, 3, 3, *[6] * 256, *[1] * len(pieces)],
        "tokenizer.ggml.merges": ["▁ h", "▁h i", "h i"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.chat_template": "{{ bos_token }}",
    }


def test_sentencepiece_kind(
    tmp_path: pathlib.Path, llama_metadata: dict[str, Any]
) -> None:
    write_gguf(tmp_path / "x.gguf", llama_metadata)
    tokenizer = load_tokenizer(tmp_path, gguf_file="x.gguf")
    assert tokenizer.encode("hi")[0] == 1  # a BOS although the file does not say so
    assert tokenizer.decode(tokenizer.encode("hi é")) == "hi é"
    assert tokenizer.hf.chat_template == "{{ bos_token }}"
    assert (tokenizer.hf.eos_token, tokenizer.hf.pad_token) == ("</s>", None)


@pytest.mark.parametrize("adds_bos", [True, False])
def test_the_file_says_whether_bos_is_added(
    tmp_path: pathlib.Path, llama_metadata: dict[str, Any], adds_bos: bool
) -> None:
    llama_metadata["tokenizer.ggml.add_bos_token"] = adds_bos
    write_gguf(tmp_path / "x.gguf", llama_metadata)
    ids = load_tokenizer(tmp_path / "x.gguf").encode("hi")
    assert (ids[0] == 1) is adds_bos


@pytest.mark.parametrize(
    ("keys", "pieces"),
    [
        ({}, ["▁hi", "▁hi"]),
        ({"tokenizer.ggml.add_space_prefix": True}, ["▁hi", "▁hi"]),
        ({"tokenizer.ggml.add_space_prefix": False}, ["hi", "▁hi"]),
    ],
)
def test_the_file_says_whether_a_space_comes_first(
    tmp_path: pathlib.Path,
    llama_metadata: dict[str, Any],
    keys: dict[str, bool],
    pieces: list[str],
) -> None:
    write_gguf(tmp_path / "x.gguf", llama_metadata | keys)
    tokenizer = load_tokenizer(tmp_path / "x.gguf")
    ids = tokenizer.encode("hi hi")[1:]
    assert tokenizer.hf.convert_ids_to_tokens(ids) == pieces
    assert tokenizer.decode(ids) == "hi hi"


def test_without_the_first_space_one_of_the_text_stays(
    tmp_path: pathlib.Path, llama_metadata: dict[str, Any]
) -> None:
    llama_metadata["tokenizer.ggml.add_space_prefix"] = False
    write_gguf(tmp_path / "x.gguf", llama_metadata)
    tokenizer = load_tokenizer(tmp_path / "x.gguf")
    assert tokenizer.decode(tokenizer.encode(" hi é")[1:]) == " hi é"


@pytest.mark.parametrize(
    ("pre", "warning"),
    [
        ("rubbish", "pre is 'rubbish', which is not known"),
        (None, "pre is missing"),
        ("smollm", None),
        ("gpt-2", None),
        ("llama-bpe", None),
    ],
)
def test_an_unknown_way_to_split_text_is_told(
    tmp_path: pathlib.Path,
    caplog: pytest.LogCaptureFixture,
    pre: str | None,
    warning: str | None,
) -> None:
    metadata: dict[str, Any] = {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": ["a", "b", "ab"],
        "tokenizer.ggml.merges": ["a b"],
    }
    if pre is not None:
        metadata["tokenizer.ggml.pre"] = pre
    write_gguf(tmp_path / "x.gguf", metadata)
    pytest.importorskip("transformers.integrations.gguf.gguf_tokenizer_mapping")
    assert load_gguf_tokenizer(tmp_path / "x.gguf").encode("ab") == [2]
    ours = [r.getMessage() for r in caplog.records if r.name.startswith("jengine")]
    assert len(ours) == (warning is not None)
    assert warning is None or f"x.gguf: tokenizer.ggml.{warning}" in ours[0]


@pytest.mark.parametrize("pre", [None, "default"])
def test_other_kinds_split_no_text(
    tmp_path: pathlib.Path,
    llama_metadata: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
    pre: str | None,
) -> None:
    keys = {} if pre is None else {"tokenizer.ggml.pre": pre}
    write_gguf(tmp_path / "x.gguf", llama_metadata | keys)
    load_gguf_tokenizer(tmp_path / "x.gguf")
    assert "tokenizer.ggml.pre" not in caplog.text


def test_equals_transformers_on_the_sentencepiece_kind(
    tmp_path: pathlib.Path, llama_metadata: dict[str, Any]
) -> None:
    pytest.importorskip("torch")
    from transformers.integrations.gguf.gguf_tokenizer_mapping import get_gguf_tokenizer

    write_gguf(tmp_path / "x.gguf", llama_metadata)
    _, _, options = get_gguf_tokenizer(str(tmp_path / "x.gguf"))
    tokenizer = load_gguf_tokenizer(tmp_path / "x.gguf")
    assert options["add_bos_token"] == tokenizer.add_bos_token
    assert options["bos_token"] == tokenizer.bos_token
    assert options["unk_token"] == tokenizer.unk_token


class TestBrokenFiles:
    def test_not_gguf(self, tmp_path: pathlib.Path) -> None:
        (tmp_path / "x.gguf").write_bytes(b"something else, long enough to be read")
        with pytest.raises(CheckpointError, match="not a GGUF file"):
            load_gguf_tokenizer(tmp_path / "x.gguf")

    def test_empty(self, tmp_path: pathlib.Path) -> None:
        (tmp_path / "x.gguf").touch()
        with pytest.raises(CheckpointError, match="cannot be read as GGUF"):
            load_gguf_tokenizer(tmp_path / "x.gguf")

    def test_missing(self, tmp_path: pathlib.Path) -> None:
        with pytest.raises(CheckpointError, match="No such file"):
            load_gguf_tokenizer(tmp_path, "missing.gguf")

    def test_neither_a_directory_nor_in_the_hub(self) -> None:
        # Tests run without the hub, so its cache is all there is.
        with pytest.raises(CheckpointError, match="is not to be had from the hub"):
            load_gguf_tokenizer("jengine/no-such-repository", "x.gguf")

    def test_old_version(self, tmp_path: pathlib.Path) -> None:
        write_gguf(tmp_path / "x.gguf", {}, version=1)
        with pytest.raises(UnsupportedError, match="supported: 2 and 3"):
            load_gguf_tokenizer(tmp_path / "x.gguf")

    @pytest.mark.parametrize("num_bytes", [5, 20, 30, 45, 100, 2000])
    def test_cut(
        self, tmp_path: pathlib.Path, llama_metadata: dict[str, Any], num_bytes: int
    ) -> None:
        file = tmp_path / "x.gguf"
        write_gguf(file, llama_metadata)
        file.write_bytes(file.read_bytes()[:num_bytes])
        with pytest.raises(CheckpointError, match="the file ends too early"):
            load_gguf_tokenizer(file)

    def test_no_tokenizer_in_it(self, tmp_path: pathlib.Path) -> None:
        write_gguf(tmp_path / "x.gguf", {"general.architecture": "llama"})
        with pytest.raises(CheckpointError, match="no tokenizer can be made"):
            load_gguf_tokenizer(tmp_path / "x.gguf")

    def test_unknown_kind(
        self, tmp_path: pathlib.Path, llama_metadata: dict[str, Any]
    ) -> None:
        llama_metadata["tokenizer.ggml.model"] = "rubbish"
        write_gguf(tmp_path / "x.gguf", llama_metadata)
        with pytest.raises(CheckpointError, match="rubbish"):
            load_gguf_tokenizer(tmp_path / "x.gguf")


@pytest.mark.slow
@pytest.mark.checkpoint
def test_real_file_equals_transformers(smollm2_gguf: pathlib.Path) -> None:
    pytest.importorskip("torch")  # transformers reads the file with it
    from transformers import AutoTokenizer

    reference = AutoTokenizer.from_pretrained(
        smollm2_gguf.parent, gguf_file=smollm2_gguf.name
    )
    hf = load_gguf_tokenizer(smollm2_gguf)
    assert hf.backend_tokenizer.to_str() == reference.backend_tokenizer.to_str()
    assert hf.chat_template == reference.chat_template
    assert hf.special_tokens_map == reference.special_tokens_map
    for text in TEXTS:
        assert hf.encode(text) == reference.encode(text)


@pytest.mark.checkpoint
def test_real_file_from_any_place(
    smollm2_gguf: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "other.gguf").symlink_to(smollm2_gguf)
    tokenizer = load_tokenizer(tmp_path, gguf_file="other.gguf")
    assert tokenizer.encode("The") == [504]
    assert (tokenizer.max_token_id, tokenizer.eos_token_id) == (49151, 2)
