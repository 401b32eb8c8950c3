"""A program and its dump, both made up."""

import stat
from typing import NamedTuple

import pytest

from jengine.aot.facts import KernelFacts
from jengine.aot.inspect import KernelBook, Subject, inspect

CALL = """\
  %pallas_call.{number} = bf16[8,32,128]{{2,1,0}} custom-call(%q), custom_call_target=\
"__gpu$xla.gpu.triton", backend_config={{grid_x = 8, ir = "{ir}", name = "{name}"}}
"""
THUNKS = """\
001: kCopy         [source       | next=002 (1)] kCopy
002: kCustomKernel [prev=001 (1) | next=003 (1)] write grid: [1, 1, 1]
003: kCustomKernel [prev=002 (1) | next=004 (1)] decode grid: [8, 8, 1] threads:\
 [128, 1, 1]  shared_memory: 72192 bytes
004: kCustomKernel [prev=003 (1) | next=005 (1)] write grid: [1, 1, 1]
005: kCustomKernel [prev=004 (1) | sink        ] decode grid: [8, 8, 1]
"""
PTX = ".target sm_90a\n.visible .entry decode(\n)\n{\n  mma.sync.aligned;\n}\n"
# Says how often it was asked, in place of registers.
PTXAS = """#!/bin/sh
echo x >> "$0.count"
echo "Compiling entry function 'decode' for 'sm_90a'" >&2
echo "Used $(grep -c x "$0.count") registers, 8 bytes smem" >&2
echo "4 bytes spill stores, 2 bytes spill loads" >&2
"""
SUBJECT = Subject(layers=2, kv_shape=(9, 8, 16, 128), dtype="bfloat16")


class Memory(NamedTuple):
    argument_size_in_bytes: int = 100
    output_size_in_bytes: int = 60
    temp_size_in_bytes: int = 7
    alias_size_in_bytes: int = 50


class Compiled(NamedTuple):
    text: str

    def as_text(self):
        return self.text

    def memory_analysis(self):
        return Memory()


def module(ir, name="decode"):
    calls = [CALL.format(number=n, ir=ir, name=name) for n in range(2)]
    copy = "  %copy.1 = bf16[9,8,16,128]{3,2,1,0} copy(%kv)\n"
    return Compiled("".join(calls) + copy)


@pytest.fixture
def book(tmp_path):
    path = tmp_path / "ptxas"
    path.write_text(PTXAS)
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    return KernelBook(str(path))


@pytest.fixture
def dump(tmp_path):
    """Makes dumps, with the text of the kernel or without."""

    def make(name, ptx=PTX):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "module_0001.jit_x.thunk_sequence.txt").write_text(THUNKS)
        (folder / "module_0001.jit_x.thunk_sequence_after_thunk_passes.txt").touch()
        if ptx is not None:
            (folder / "module_0001.jit_x.3.ptx").write_text(ptx)
        return folder

    return make


def test_everything_is_found(book, dump):
    facts = inspect(module("abc"), dump("one"), SUBJECT, book, seconds=1.234)
    assert facts is not None
    assert facts.compile_s == 1.23
    assert facts.launches == 5
    assert facts.launches_per_layer == 2
    assert facts.kv_copies == 1
    assert (facts.argument_bytes, facts.temp_bytes) == (100, 7)
    assert (facts.output_bytes, facts.aliased_bytes) == (60, 50)
    kernel = KernelFacts(
        name="decode",
        registers=1,
        spill_bytes=6,
        shared_bytes=72192 + 8,
        instructions={"mma.sync": 1},
    )
    assert facts.kernels == (kernel,)


def test_a_kernel_that_xla_took_from_its_cache_is_known(book, dump):
    first = inspect(module("abc"), dump("one"), SUBJECT, book, seconds=1.0)
    again = inspect(module("abc"), dump("two", ptx=None), SUBJECT, book, seconds=1.0)
    assert first is not None
    assert again is not None
    assert again.kernels == first.kernels


def test_a_kernel_that_nobody_has_seen_must_be_compiled_again(book, dump):
    inspect(module("abc"), dump("one"), SUBJECT, book, seconds=1.0)
    other = module("other code of the same name")
    assert inspect(other, dump("two", ptx=None), SUBJECT, book, seconds=1.0) is None


def test_other_code_that_becomes_the_same_text_is_assembled_once(book, dump):
    first = inspect(module("abc"), dump("one"), SUBJECT, book, seconds=1.0)
    same = inspect(module("def"), dump("two"), SUBJECT, book, seconds=1.0)
    other = PTX.replace("aligned", "aligned.m16n8k16")
    third = inspect(module("ghi"), dump("three", other), SUBJECT, book, seconds=1.0)
    assert first is not None
    assert same is not None
    assert third is not None
    registers = [facts.kernels[0].registers for facts in (first, same, third)]
    assert registers == [1, 1, 2]


def test_a_program_without_kernels_needs_no_assembler(dump):
    book = KernelBook("there is none")
    subject = SUBJECT._replace(layers=0)
    facts = inspect(Compiled(""), dump("one"), subject, book, seconds=1.0)
    assert facts is not None
    assert facts.kernels == ()
    assert facts.launches_per_layer is None
