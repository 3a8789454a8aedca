# SPDX-License-Identifier: Apache-2.0
"""Holds the machine code of a ResNet-50 step's kernels to a budget. It reads what NVRTC and nvcc make for a Hopper, so it needs no GPU.

usage: budget.py [--cuobjdump FILE] --tools FOLDER --expressions FILE --nvcc FILE --include FOLDER
       budget.py --self-test

Without --cuobjdump, cuobjdump and nvdisasm come from the Python package index; --tools keeps them.

--expressions names the program sass_expressions. The table has these columns:

loop       instructions of the main loop, for each element
once       instructions of a thread that takes the loop once, for each element
loads      global loads in the loop, and how many bytes each has
registers  of a thread; 2,048 threads per multiprocessor have room for 32 each
stack      bytes; more than none means that registers are spilled

The main loop is, of the loops with the widest loads from global memory and no such loop inside, the largest. Its elements are counted by the
bytes that it stores, or by those that it loads where it stores nothing.
"""

import argparse
import collections
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

ADD_RELU = "relu(add(add(mul(sub(x0, x1), x2), x3), x4))"
RELU_GRADIENT = "select(less_equal(x0, 0), 0, add(x1, x2))"
NORM_GRADIENT = "add(mul(x1, x0), add(x4, mul(x5, sub(x2, x3))))"
SGD = "sub(x0, mul(0.1, add(mul(0.9, x2), add(x1, mul(0.0001, x0))))); add(mul(0.9, x2), add(x1, mul(0.0001, x0)))"

# A kernel and its bounds. `narrow`: how many loads may have fewer than 16 bytes.
Row = collections.namedtuple("Row", "name kernel loop once narrow registers stack", defaults=[0])
# Of NVRTC: precision, kernel and formula; for a Reduce also the bytes that the main loop loads for an element. The source with the
# most elements counts.
EXPRESSIONS = [
    Row("batch norm + ReLU", ("float32", "compiled_map", "relu(add(mul(sub(x0, x1), x2), x3))"), 10, 12, 0, 40),
    Row("batch norm + residual + ReLU", ("float32", "compiled_map", ADD_RELU), 12.5, 17, 0, 32),
    Row("gradient of residual + ReLU", ("float32", "compiled_map", RELU_GRADIENT), 7, 11, 0, 32),
    Row("gradient of batch norm + ReLU", ("float32", "compiled_map",
        "add(mul(select(less_equal(relu(add(mul(sub(x1, x2), x0), x3)), 0), 0, x4), x0), add(x5, mul(x6, sub(x1, x2))))"), 18, 22, 0, 40),
    Row("gradient of batch norm", ("float32", "compiled_map", NORM_GRADIENT), 13.5, 17, 0, 32),
    Row("SGD with momentum", ("float32", "compiled_map", SGD), 11, 15, 1, 32),
    Row("SGD with momentum, merged", ("float32", "compiled_merged_map", SGD), 11, 20, 1, 40),
    Row("sums of batch norm", ("float32", "compiled_reduce", "x0", 4), 3, None, 0, 64, 192),  # the stack holds a tree of partial results
    Row("sums of batch norm's gradient", ("float32", "compiled_reduce", "x0; mul(x0, sub(x1, x2))", 8), 6, None, 0, 48, 192),
    Row("batch norm + ReLU", ("bfloat16", "compiled_map", "relu(add(mul(sub(x0, x1), x2), x3))"), 16, 17, 0, 64),
    Row("batch norm + residual + ReLU", ("bfloat16", "compiled_map", ADD_RELU), 19, 21, 0, 40),
    Row("gradient of residual + ReLU", ("bfloat16", "compiled_map", RELU_GRADIENT), 17, 19, 0, 32),
    Row("gradient of batch norm + ReLU", ("bfloat16", "compiled_map",
        "add(mul(select(less_equal(x1, 0), 0, x2), x0), add(x5, mul(x6, sub(x3, x4))))"), 23.5, 26, 0, 40),
    Row("gradient of batch norm", ("bfloat16", "compiled_map", NORM_GRADIENT), 19.5, 22, 0, 40),
]
# Of nvcc: a header below include/replicator/cuda, what the kernel's mangled name contains, and the bytes that the main loop loads
# for an element.
HEADERS = [
    Row("max pooling, without cuDNN", ("float32", "pooling.cuh", r"4poolINS1_13MaxPoolKernelEif", 4), 8.5, None, 1, 32),
    Row("places of maxima", ("float32", "pooling.cuh", r"11find_maximaILi8EihfE", 4), 5.5, None, 0, 48),
    Row("gradient of max pooling", ("float32", "pooling.cuh", r"6spreadILi8EihffE", 5), 6.5, None, 4, 56),
    Row("places of maxima", ("bfloat16", "pooling.cuh", r"11find_maximaILi8EihNS1_12Bfloat16Word", 2), 7, None, 0, 48),
    Row("gradient of max pooling", ("bfloat16", "pooling.cuh", r"6spreadILi8EihNS1_12Bfloat16WordES3_E", 3), 8, None, 2, 48),
]

Instruction = collections.namedtuple("Instruction", "address text")
Kernel = collections.namedtuple("Kernel", "code registers stack")


def opcode(instruction):
    return re.sub(r"^@!?U?P\w+ ", "", instruction.text).split()[0]


def memory_bytes(instruction):
    """How many bytes an instruction like LDG.E.128 moves."""
    width = re.search(r"\.[US]?(8|16|32|64|128)\b", opcode(instruction))
    return int(width[1]) // 8 if width else 4


def global_accesses(code, kind):
    return [memory_bytes(instruction) for instruction in code if opcode(instruction).split(".")[0] == kind]


def read_kernels(sass, resources):
    """The kernels in what cuobjdump prints, by mangled name."""
    code = {}
    for line in sass.splitlines():
        if name := re.search(r"Function : (\S+)", line):
            code[name[1]] = []
        elif found := re.match(r"\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;", line):
            code[name_of(code)].append(Instruction(int(found[1], 16), found[2]))
    used = {found[1]: found for found in re.finditer(r"Function (\S+):\s+REG:(\d+) STACK:(\d+)", resources)}
    return {name: Kernel(without_padding(body), int(used[name][2]), int(used[name][3])) for name, body in code.items()}


def name_of(code):
    return next(reversed(code))


def without_padding(code):
    """Behind the last instruction there is a branch to itself, and NOPs."""
    return [i for i in code if opcode(i) != "NOP" and jump(i) != i.address]


def jump(instruction):
    """Where a branch goes, or None."""
    found = re.search(r"\bBRA\b.*?\b(0x[0-9a-f]+)$", instruction.text)
    return int(found[1], 16) if found else None


def loops(code):
    for branch in code:
        to = jump(branch)
        if to is not None and to < branch.address:
            yield [i for i in code if to <= i.address <= branch.address]


def main_loop(code):
    loading = [loop for loop in loops(code) if global_accesses(loop, "LDG")]
    innermost = [loop for loop in loading if not any(set(other) < set(loop) for other in loading)]
    return max(innermost, key=lambda loop: (max(global_accesses(loop, "LDG")), len(loop)), default=[])


def measure(kernel, stored=None, loaded=None):
    """`stored`, `loaded`: bytes of an element that the main loop stores, or loads."""
    loop = main_loop(kernel.code)
    loads = global_accesses(loop, "LDG")
    elements = sum(global_accesses(loop, "STG")) / stored if stored else sum(loads) / loaded
    if not elements:
        return None
    straight = [i for i in kernel.code if i.address <= loop[-1].address]
    return {"loop": len(loop) / elements, "once": len(straight) / elements, "loads": loads, "registers": kernel.registers, "stack": kernel.stack}


def broken_bounds(row, got):
    if got is None:
        return ["it has no loop with the elements that were expected"]
    narrow = sum(bytes < 16 for bytes in got["loads"])
    checks = [("loop", got["loop"], row.loop), ("once", got["once"], row.once), ("narrow loads", narrow, row.narrow),
              ("registers", got["registers"], row.registers), ("stack", got["stack"], row.stack)]
    return [f"{what} {value:g} is more than {most:g}" for what, value, most in checks if most is not None and value > most]


def text_of(loads):
    return " ".join(f"{count}x{bytes}" for bytes, count in sorted(collections.Counter(loads).items()))


def report(measured):
    """Prints the table. Returns how many rows break a bound."""
    print(f"{'kernel':42}{'loop':>7}{'most':>7}{'once':>7}{'most':>7}  {'loads':14}{'registers':>9}{'most':>5}{'stack':>6}")
    broken = 0
    for row, got in measured:
        name = f"{row.name}, {row.kernel[0]}"
        if got:
            once = f"{got['once']:7.1f}{row.once:7.1f}" if row.once else " " * 14
            print(f"{name:42}{got['loop']:7.1f}{row.loop:7.1f}{once}  {text_of(got['loads']):14}{got['registers']:9}{row.registers:5}{got['stack']:6}")
        for sentence in broken_bounds(row, got):
            print(f"    broken: {sentence}")
            broken += 1
    return broken


def output_of(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"failed: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def cuobjdump_of_index(folder):
    """The path of cuobjdump, which looks for nvdisasm beside itself. None where it cannot be had."""
    version = "13.5.37"
    wheels = [f"nvidia-cuda-{name}=={version}" for name in ("cuobjdump", "nvdisasm")]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", folder, *wheels]
    if len(list(folder.glob(f"*-{version}-*.whl"))) < len(wheels):
        done = subprocess.run(pip, capture_output=True, text=True)
        if done.returncode:
            print("skipped: pip cannot download cuobjdump and nvdisasm:", done.stderr.strip().splitlines()[-1:])
            return None
    for wheel in folder.glob(f"*-{version}-*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    for tool in folder.glob("nvidia/*/bin/*"):
        tool.chmod(0o755)
    return next(folder.glob("nvidia/*/bin/cuobjdump"))


def kernels_in(cuobjdump, file):
    return read_kernels(output_of(cuobjdump, "-sass", file), output_of(cuobjdump, "-res-usage", file))


def measure_expressions(cuobjdump, program, folder):
    largest = {}
    for line in output_of(program, folder).splitlines():
        precision, kernel, stored, elements, file, formula = line.split("\t")
        known = largest.setdefault((precision, kernel, formula), (0, 0, ""))
        largest[precision, kernel, formula] = max(known, (int(elements), int(stored), file))
    for row in EXPRESSIONS:
        precision, kernel, formula, *loaded = row.kernel
        if (precision, kernel, formula) not in largest:
            sys.exit(f"failed: a ResNet-50 step has no {kernel} of {formula} in {precision}: name the formula that it has now")
        _, stored, file = largest[precision, kernel, formula]
        yield row, measure(kernels_in(cuobjdump, file)[kernel], stored, *loaded)


def measure_headers(cuobjdump, nvcc, include, folder):
    compiled = {}
    for row in HEADERS:
        _, header, pattern, loaded = row.kernel
        if header not in compiled:
            source, file = folder / f"{header}.cu", folder / f"{header}.cubin"
            source.write_text(f"#include <replicator/cuda/{header}>\n")
            output_of(nvcc, "-std=c++20", "--extended-lambda", "-arch=sm_90", "-cubin", f"-I{include}", "-o", file, source)
            compiled[header] = kernels_in(cuobjdump, file)
        found = [kernel for name, kernel in compiled[header].items() if re.search(pattern, name)]
        if len(found) != 1:
            sys.exit(f"failed: {len(found)} kernels of {header} have a name with {pattern}: one is needed")
        yield row, measure(found[0], loaded=loaded)


SAMPLE_SASS = """
		Function : sample
        /*0000*/                   LDC R1, c[0x0][0x28] ;    /* 0x00 */
        /*0010*/               @P0 EXIT ;                    /* 0x00 */
        /*0020*/                   IADD3 R0, R0, R1, RZ ;    /* 0x00 */
        /*0030*/                   LDG.E.128 R4, desc[UR4][R2.64] ; /* 0x00 */
        /*0040*/                   LDG.E R8, desc[UR4][R2.64] ; /* 0x00 */
        /*0050*/                   STG.E.64 desc[UR4][R2.64], R4 ; /* 0x00 */
        /*0060*/              @!P0 BRA 0x30 ;                /* 0x00 */
        /*0070*/              @!P1 BRA 0x20 ;                /* 0x00 */
        /*0080*/                   EXIT ;                    /* 0x00 */
        /*0090*/                   BRA 0x90;                 /* 0x00 */
        /*00a0*/                   NOP;                      /* 0x00 */
"""
SAMPLE_RESOURCES = " Function sample:\n  REG:20 STACK:8 SHARED:0\n"


def self_test():
    kernel = read_kernels(SAMPLE_SASS, SAMPLE_RESOURCES)["sample"]
    assert len(kernel.code) == 9, kernel.code
    got = measure(kernel, stored=4)
    assert got == {"loop": 2, "once": 3.5, "loads": [16, 4], "registers": 20, "stack": 8}, got
    assert measure(kernel, loaded=10)["loop"] == 2
    row = Row("sample", ("float32",), 2, 3.5, 1, 20)
    assert broken_bounds(row, got) == ["stack 8 is more than 0"]
    got["stack"] = 0
    assert broken_bounds(row, got) == []
    for tighter in (row._replace(loop=1.9), row._replace(once=3), row._replace(narrow=0), row._replace(registers=19)):
        assert len(broken_bounds(tighter, got)) == 1, tighter
    assert broken_bounds(row, measure(kernel._replace(code=kernel.code[:3]), stored=4))


def main():
    parser = argparse.ArgumentParser()
    for option in ("cuobjdump", "tools", "expressions", "nvcc", "include"):
        parser.add_argument(f"--{option}", type=pathlib.Path)
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    self_test()
    if options.self_test:
        return
    cuobjdump = options.cuobjdump or cuobjdump_of_index(options.tools)
    if not cuobjdump:
        return
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        measured = list(measure_expressions(cuobjdump, options.expressions, folder))
        measured += measure_headers(cuobjdump, options.nvcc, options.include, folder)
    broken = report(measured)
    sys.exit(f"failed, broken bounds: {broken}" if broken else 0)


main()
