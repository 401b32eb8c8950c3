import argparse
import asyncio
import shutil

import pytest

from jengine.bench.bench_request import BenchRequest
from jengine.bench.serve.http_target import HttpTarget
from jengine.cli_bench.serve_flags import add_flags
from jengine.cli_bench.serve_target import make_endpoint, open_target, with_text
from jengine.errors import InvalidValueError


def flags_of(text):
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return parser.parse_args(text.split())


def opened(text):
    async def run():
        async with open_target(flags_of(text)) as found:
            return found

    return asyncio.run(run())


def test_where_vllm_serves_by_default():
    endpoint = make_endpoint(flags_of("--model m"))
    assert endpoint.url == "http://127.0.0.1:8000/v1/completions"
    assert endpoint.model == "m"
    assert not endpoint.is_chat
    assert endpoint.body == {}


def test_every_flag_of_the_server():
    endpoint = make_endpoint(
        flags_of(
            "--backend openai-chat --base-url https://host/api/ --model folder"
            " --served-model-name name --header a=b --ignore-eos --temperature 0.5"
            ' --top-k 3 --extra-body {"temperature":1}'
        )
    )
    assert endpoint.url == "https://host/api/v1/chat/completions"
    assert (endpoint.model, endpoint.is_chat, endpoint.ignore_eos) == (
        "name", True, True,
    )  # fmt: skip
    assert endpoint.headers == {"a": "b"}
    assert endpoint.body == {"temperature": 1, "top_k": 3}
    own = make_endpoint(flags_of("--host h --port 9 --endpoint /x --model m"))
    assert own.url == "http://h:9/x"


def test_a_server_gets_ids():
    pytest.importorskip("aiohttp")
    target, requests, _ = opened(
        "--model m --num-prompts 3 --input-len 5 --vocab-size 20 --output-len 2"
    )
    assert isinstance(target, HttpTarget)
    assert [len(one.token_ids) for one in requests] == [5, 5, 5]
    assert max(i for one in requests for i in one.token_ids) < 20


def test_a_chat_gets_text(alphabet_dir, tmp_path):
    pytest.importorskip("aiohttp")
    # Who wants text of a server needs the tokenizer, and no weights.
    folder = shutil.copytree(alphabet_dir, tmp_path / "copy")
    (folder / "model.safetensors").unlink()
    _, requests, _ = opened(
        f"--backend openai-chat --model {folder} --num-prompts 2 --input-len 5"
    )
    assert all(one.text and not one.token_ids for one in requests)
    assert [one.prompt_tokens for one in requests] == [5, 5]


def test_a_tokenizer_may_be_named_instead(alphabet_dir):
    pytest.importorskip("aiohttp")
    _, requests, _ = opened(
        f"--backend openai-chat --model some/name --tokenizer {alphabet_dir}"
        " --num-prompts 1 --input-len 5"
    )
    assert requests[0].text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("--backend openai-chat", "model is None; .*whose tokenizer makes prompts"),
        ("", "model is None; .*asked by this name"),
        ("--tokenizer folder", "model is None"),
        ("--model m --max-num-seqs 3", "max_num_seqs is 3; .*--backend jengine only"),
        ("--backend jengine --vocab-size 9", "--vocab-size is 9; .*servers only"),
        ("--backend jengine --header a=b", "--header is .*servers only"),
        ('--backend jengine --extra-body {"a":1}', "--extra-body is .*servers only"),
    ],
)
def test_what_a_backend_lacks_or_ignores_is_refused(text, message):
    with pytest.raises(InvalidValueError, match=message):
        opened(f"{text} --num-prompts 1")


@pytest.mark.parametrize("text", ["--vocab-size 0", "--extra-body [1]"])
def test_values_that_make_no_sense_are_one_line(text, capsys):
    with pytest.raises(SystemExit):
        flags_of(f"--model m {text}")
    assert f"argument {text.split()[0]}: " in capsys.readouterr().err


@pytest.mark.parametrize("backend", ["openai", "openai-chat"])
def test_servers_warm_up_with_other_prompts(alphabet_dir, backend):
    pytest.importorskip("aiohttp")
    _, requests, warmups = opened(
        f"--backend {backend} --model {alphabet_dir} --num-prompts 4 --input-len 8"
        " --output-len 2 --vocab-size 20 --num-warmups 3"
    )
    assert [one.prompt_tokens for one in warmups] == [8] * 3
    prompts = [one.text or one.token_ids for one in requests]
    assert not {p[:3] for p in prompts} & {(w.text or w.token_ids)[:3] for w in warmups}


def test_text_that_is_known_is_kept():
    one = BenchRequest(
        token_ids=(1, 2), text="hi", prompt_tokens=2, output_tokens=3, arrival_s=0.5
    )
    kept = with_text(one, lambda ids: "other")
    assert (kept.text, kept.token_ids, kept.arrival_s) == ("hi", (), 0.5)
