#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests scripts/check-cuda without a GPU: its checks run scripts of a temporary folder in place of programs, libraries and tools.

usage: check_cuda.py ROOT COMPILER [TEST...]     TEST: as CheckCuda.test_another_digest_fails"""
import json
import os
import re
import stat
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT, COMPILER = Path(sys.argv[1]), sys.argv[2]
PROGRAMS = ("bench/resnet_step_cuda", "bench/convolutions_cuda", "examples/resnet_gradients_cuda", "examples/resnet50_cuda", "examples/hello_cuda",
            "tests/test_cuda")
HELLO = """
[[ "$*" == *--resume* ]] || for word; do [[ $previous == --checkpoint ]] && touch "$word/step-0000000010.safetensors"; previous=$word; done
for word; do [[ $previous == --plan ]] && echo "{}" > "$word"; previous=$word; done
[[ -n $WORLD_SIZE && "$*" != *--plan* ]] && exit 1  # all processes gather the plan
echo "digest: abc"
"""
STEP = """
for word; do [[ $previous == --plan ]] && cp "$(dirname "$0")/plan.json" "$word"; previous=$word; done
echo "0.1000 s/step 2560.00 images/s, planned in 1.00 s"
echo "plan: memory"
"""
NCU = """
[[ $1 == --version ]] && echo "ncu 1" && exit
while [[ $1 != --log-file ]]; do shift; done
cp "$(dirname "$0")/ncu.csv" "$2"
"""
# 30 GB of other kernels than convolutions take 10 ms at 3 TB/s, and the convolutions 15 ms.
PLAN = {"processes": [{"devices": [{"instructions": [
    {"do": "run", "kernel": "cuDNN convolution", "inputs": [{"bytes": 10**12}], "outputs": []},
    {"do": "run", "kernel": "compiled map", "inputs": [{"bytes": 10**10}], "outputs": [{"bytes": 10**10}]},
    {"do": "copy", "bytes": 5 * 10**9}]}]}]}


def metrics(launch, kernel, microseconds, megabytes):
    """The lines of ncu for one launch."""
    begin = f'"{launch}","7","resnet_step","host","{kernel}","1","7","(128, 1, 1)","(8, 1, 1)","0","9.0","Command line profiler metrics",'
    return [f'{begin}"dram__bytes.sum","Mbyte","{megabytes}"', f'{begin}"gpu__time_duration.sum","us","{microseconds}"']


def ncu_lines(launches):
    header = '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",' \
             '"Section Name","Metric Name","Metric Unit","Metric Value"'
    return "\n".join(["==PROF== Connected to process 7", header, *(line for i, launch in enumerate(launches) for line in metrics(i, *launch))]) + "\n"


class CheckCuda(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.built, self.tools = Path(self.folder.name, "built"), Path(self.folder.name, "tools")
        self.results = Path(self.folder.name, "results")
        for program in PROGRAMS:
            self.write(self.built / program, "exit 0")
        self.write(self.built / "examples/hello_cuda", HELLO)
        self.write(self.built / "bench/resnet_step_cuda", STEP)
        self.write(self.built / "bench/convolutions_cuda", 'echo "convolutions 0.015000 s by cuDNN (159), memory 3e+12 B/s"')
        (self.built / "bench/plan.json").write_text(json.dumps(PLAN))
        self.write(self.tools / "ldd", "for name in cudnn.so.9 cublasLt.so.13 nvrtc.so.13; do echo \"lib$name => /lib\"; done")
        self.write(self.tools / "nvidia-smi", 'echo "a GPU"')
        self.write(self.tools / "ncu", NCU)
        self.write(self.tools / "compute-sanitizer", 'while [[ $1 == --* ]]; do [[ $1 == --report* || $1 == --tool || $1 == --error* ]] && shift; shift; done\n"$@"')
        step = [("void one<float>", "1,000.5", "3"), ("two", "2000", "4"), ("void one<float>", "999.5", "3")]
        (self.tools / "ncu.csv").write_text(ncu_lines([("void first", "9", "9"), *step, *step]))
        (self.tools / "torch.py").write_text("raise ImportError('no torch')\n")

    def write(self, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/usr/bin/env bash\n" + text + "\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def run_script(self, *arguments, script=ROOT / "scripts/check-cuda"):
        environment = {**os.environ, "PATH": f"{self.tools}:{os.environ['PATH']}", "PYTHONPATH": str(self.tools), "RESULTS": str(self.results)}
        return subprocess.run([script, "--built", self.built, "--results", self.results, *arguments], env=environment, capture_output=True, text=True)

    def summary(self):
        return (self.results / "summary.txt").read_text().splitlines()

    def failed(self):
        return [re.sub(r" \(\d+ s\)", "", line) for line in self.summary() if line.startswith("FAILED")]

    def test_without_a_gpu_every_stage_is_skipped_and_the_status_is_77(self):
        self.write(self.built / "examples/hello_cuda", '[[ "$*" == *cuda* ]] && echo "cuda:0 was asked for, but there is none" >&2 && exit 1\necho "digest: abc"')
        stages = ["first", "kernels", "training", "time", "sanitize", "time-small"]
        for asked in (stages, []):
            done = self.run_script(*asked)
            self.assertEqual(done.returncode, 77, done.stdout + done.stderr)
            self.assertEqual(self.summary()[-len(stages):], [f"skipped {stage}: there is no GPU" for stage in stages])

    def test_every_check_leaves_its_output_and_a_line(self):
        done = self.run_script("first", "kernels", "training", "time", "sanitize", "time-small", "time-more", "sanitize-more")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        passed = [re.fullmatch(r"passed  (.*) \(\d+ s\)", line)[1] for line in self.summary() if line.startswith("passed")]
        files = {re.sub("[^A-Za-z0-9]", "_", name)[:100] + ".txt" for name in passed}
        self.assertEqual(len(files), len(passed))
        self.assertEqual(files | {"summary.txt", "kernels_224.csv", "kernels_32.csv"}, set(os.listdir(self.results)))
        timed = [line for line in self.summary() if line.startswith("timed")]
        self.assertIn("timed   ResNet-50 --precision bfloat16, 224x224, batch 256: 0.1000 s/step 2560.00 images/s, planned in 1.00 s", timed)
        self.assertIn("timed   kernels of ResNet-50 --precision bfloat16, 32x32, batch 128: 4.000 ms in 3 launches of one step, 0.010 GB", timed)
        self.assertIn("timed   the limit of ResNet-50 bfloat16, 224x224, batch 256: 30.0 GB of other kernels; 10240 images/s, of which the step has 0.25", timed)

    def test_a_check_that_hangs_is_cut_and_the_others_follow(self):
        self.write(self.built / "tests/test_cuda", "sleep 1000")
        done = self.run_script("--limit", "2", "kernels")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(self.failed(), [f"FAILED  {name}: it took longer than it may" for name in (
            "every kernel against the CPU's plain loops", "expressions: machine code by NVRTC, and the interpreter's bits from it")])

    def test_no_check_starts_after_the_time_of_all(self):
        self.write(self.built / "tests/test_cuda", "sleep 1000")
        self.run_script("--within", "4", "kernels", "training")
        self.assertIn("FAILED  training, one digest: no time is left of --within 4", self.failed())

    def test_the_output_comes_while_a_check_runs(self):
        self.write(self.built / "tests/test_cuda", 'echo begun\nfor _ in {1..100}; do grep -q begun "$RESULTS"/every_kernel*.txt && exit 0; sleep 0.1; done\nexit 1')
        self.run_script("kernels")
        self.assertNotIn("FAILED  every kernel against the CPU's plain loops", self.failed())

    def test_another_digest_fails(self):
        self.write(self.built / "examples/hello_cuda", HELLO.replace("abc", "$([[ $* == *cuda:0x4* ]] && echo abd || echo abc)"))
        self.run_script("training")
        self.assertEqual(self.failed(), ["FAILED  the same digest on cuda:0x4", "FAILED  the same digest on cuda:0x4, nothing captured"])

    def test_a_run_that_was_not_resumed_fails(self):
        self.write(self.built / "examples/hello_cuda", HELLO.replace("touch", "true"))  # writes no checkpoint
        self.run_script("training")
        self.assertEqual(self.failed(), ["FAILED  the same digest of a resumed run"])

    def test_processes_with_another_digest_an_error_or_values_in_the_memory_of_the_host_fail(self):
        broken_ones = (HELLO.replace("abc", "ab${WORLD_SIZE:-c}"), HELLO.replace('echo "d', '[[ ${RANK:-0} == 1 ]] && exit 1\necho "d'),
                       HELLO.replace('"{}"', """'{"reason": "one latency; through the host'"'"'s memory: it refuses"}'"""))
        for count, broken in enumerate(broken_ones, 1):
            self.write(self.built / "examples/hello_cuda", broken)
            self.run_script("training")
            self.assertEqual(self.failed(), ["FAILED  the same digest of two processes that read each other's memory"] * count)

    def test_every_file_of_tests_of_the_gpu_is_run(self):
        stages = (ROOT / "scripts/check-cuda").read_text()
        for file in (ROOT / "tests/cuda").glob("test_*.c*"):
            self.assertIn(f"[#{file.stem}]", stages)

    def compile(self, program, source, *flags):
        subprocess.run([COMPILER, "-x", "c++", "-", "-o", self.built / program, *flags], input=source, text=True, check=True)

    def prepare(self):
        (self.tools / "ldd").unlink()
        for program in PROGRAMS:
            self.compile(program, "int main() {}", "-static-libstdc++", "-static-libgcc")

    def test_prepared_programs_come_with_the_scripts(self):
        self.prepare()
        done = self.run_script("prepare")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("scripts/check-cuda --built prepared", done.stdout)
        carried = self.built / "prepared"
        for program in PROGRAMS:
            self.assertNotIn(".symtab", subprocess.run(["readelf", "-S", carried / program], capture_output=True, text=True, check=True).stdout)
        for script in ("kernel_times.py", "kernel_bytes.py", "launch_gaps.py"):
            subprocess.run([carried / "scripts" / script, "--help"], check=True, capture_output=True)
        for program in PROGRAMS:
            self.write(carried / program, HELLO)
        self.write(self.tools / "ldd", "for name in cudnn.so.9 cublasLt.so.13 nvrtc.so.13; do echo \"lib$name => /lib\"; done")
        self.built = carried
        done = self.run_script("kernels", script=carried / "scripts/check-cuda")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_a_program_that_needs_another_library_is_not_prepared(self):
        self.prepare()
        self.compile("tests/test_cuda", "int main() {}", "-Wl,--no-as-needed", "-fopenmp")
        self.assertEqual(self.run_script("prepare").returncode, 1)
        self.assertEqual(self.failed(), ["FAILED  libraries of a bare machine are enough"])
        self.assertRegex((self.results / "libraries_of_a_bare_machine_are_enough.txt").read_text(), r"tests/test_cuda needs what a bare machine lacks: .*libgomp")

    def test_a_folder_of_more_than_55_mib_is_not_prepared(self):
        self.prepare()
        self.compile("bench/convolutions_cuda", "char much[56 << 20] = {1}; int main() { return much[1]; }")
        self.assertEqual(self.run_script("prepare").returncode, 1)
        self.assertIn("FAILED  the folder is small", self.failed())

    def kernel_times(self, text):
        file = Path(self.folder.name, "lines.csv")
        file.write_text(text)
        return subprocess.run([ROOT / "scripts/kernel_times.py", file], capture_output=True, text=True)

    def test_kernels_come_by_time_with_their_share_and_speed(self):
        lines = self.kernel_times((self.tools / "ncu.csv").read_text()).stdout.splitlines()
        self.assertEqual([line.split() for line in lines[2:]], [["2.000", "50.0", "2", "0.006", "3", "one<float>"], ["2.000", "50.0", "1", "0.004", "2", "two"]])

    def test_pages_of_raw_metrics_are_read_too(self):
        text = '"ID","Kernel Name","dram__bytes.sum","gpu__time_duration.sum"\n"","","byte","ns"\n"0","a","3000","1000"\n"1","a","3000","1000"\n'
        self.assertEqual(self.kernel_times(text).stdout.splitlines()[0], "0.001 ms in 1 launches of one step, 0.000 GB")

    def test_steps_that_differ_are_counted_whole(self):
        self.assertIn("3 launches of the whole program", self.kernel_times(ncu_lines([("a", "1", "1"), ("b", "1", "1"), ("c", "1", "1")])).stdout)

    def test_lines_that_are_not_understood_are_refused(self):
        self.assertIn('the unit "fortnight"', self.kernel_times((self.tools / "ncu.csv").read_text().replace('"us"', '"fortnight"')).stderr)
        self.assertIn("has no launch", self.kernel_times("==ERROR== no permission\n").stderr)
        self.assertIn("a launch has no", self.kernel_times((self.tools / "ncu.csv").read_text().replace("dram__bytes.sum", "lts__bytes.sum")).stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
