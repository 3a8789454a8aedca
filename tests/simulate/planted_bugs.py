#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants one bug after the other in a copy of the library, and checks that the simulation finds each within a minute.

    tests/simulate/planted_bugs.py SOURCE FOLDER [COMPILER] [BUG ...]

Exit code: the number of bugs that were not found."""
import shutil
import subprocess
import sys
import time
from pathlib import Path

JOB = "include/replicator/job/"
BUGS = {
    # name: (simulation, [(file, text, planted text), ...])
    "acknowledged_by_the_kernel": ("job", [  # the split brain of old: who has acknowledged that it is out, counts as out
        (JOB + "survivors.hpp", "        if (!on_this_machine(process)) return false;\n", ""),
        (JOB + "survivors.hpp", "    if (on_this_machine(process)) return dead_[process] || told ? Outside::gone_here : Outside::unknown;\n"
                                "    return dead_[process] ? Outside::gone : Outside::unknown;\n",
         "    return dead_[process] || told ? Outside::gone_here : Outside::unknown;\n")]),
    "half_goes_on": ("job", [(JOB + "epochs.hpp", "if (2 * members > epoch.size()) return true;", "if (2 * members >= epoch.size()) return true;")]),
    "proposed_epochs_are_ignored": ("job", [
        (JOB + "epochs.hpp", "return may_go_on_from(confirmed_, part, outside) &&\n"
                             "           std::all_of(proposed_.begin(), proposed_.end(), [&](const Epoch& epoch) { return may_go_on_from(epoch, part, outside); });",
         "return may_go_on_from(confirmed_, part, outside);")]),
    "proposed_is_confirmed": ("job", [(JOB + "epochs.hpp", "    proposed_.push_back(std::move(part));\n", "    proposed_.push_back(std::move(part));\n    confirm();\n")]),
    "a_smaller_part_outlives_the_dead": ("job", [(JOB + "epochs.hpp", "return here || 2 * members == epoch.size();", "return true;")]),
    "who_is_told_goes_on": ("job", [(JOB + "survivors.hpp", "if (told_) throw CommunicationError", "if (false) throw CommunicationError")]),
    "a_timeout_is_a_death": ("job", [(JOB + "survivors.hpp", "if (number == ECONNREFUSED) dead_[r] = true;", "if (number == ECONNREFUSED || (look && number != 0)) dead_[r] = true;")]),
    "a_claim_is_overwritten": ("job", [
        (JOB + "elastic/folder_arbiter.hpp", "const bool linked = ::link(own.c_str(), path.c_str()) == 0;", "const bool linked = std::rename(own.c_str(), path.c_str()) == 0;")]),
    "silence_is_no_death": ("job", [(JOB + "job_thread.hpp", "else if (peer.lost == never && now - peer.heard > options_.dead_after)", "else if (false)")]),
    "who_was_stopped_blames_the_others": ("job", [(JOB + "job_thread.hpp", "for (auto& peer : peers_) peer.heard = now;\n}", "}")]),
    "back_to_the_newest_moment": ("job", [("include/replicator/elastic/rollback.hpp", "oldest = std::min(oldest, theirs[0]);", "oldest = std::max(oldest, theirs[0]);")]),
    "a_call_is_not_repeated": ("job", [("include/replicator/elastic/rollback.hpp", "return made.number < call; });", "return made.number <= call; });")]),
    "renamed_before_it_is_flushed": ("checkpoints", [("include/replicator/io/file.hpp", 'if (::fsync(file_->fd()) != 0) detail::fail(path_, "flush to the disk");', "")]),
    "the_name_is_not_flushed": ("checkpoints", [("include/replicator/io/file.hpp", "if (!detail::flush_folder(folder)) detail::fail", "if (false) detail::fail")]),
    "the_folder_is_not_flushed": ("checkpoints", [
        ("include/replicator/engine/state/checkpoint_folder.hpp", "static_cast<void>(io::detail::flush_folder(io::detail::folder_of(part)));", "")]),
    "a_short_write_is_taken_for_whole": ("checkpoints", [("include/replicator/io/file.hpp", "data = data.subspan(static_cast<std::size_t>(written));", "return;")]),
    "keeps_the_oldest": ("checkpoints", [
        ("include/replicator/engine/state/checkpoint_folder.hpp", "a.size() != b.size() ? a.size() > b.size() : a > b; });", "a.size() != b.size() ? a.size() > b.size() : a < b; });")]),
}
SECONDS = 60


def find(name, source, folder, compiler):
    simulation, changes = BUGS[name]
    copy = folder / name
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(source / "include", copy / "include")
    for file, text, planted in changes:
        content = (copy / file).read_text()
        if content.count(text) != 1:
            return f"{file} has the text of this bug {content.count(text)} times: write the bug anew"
        (copy / file).write_text(content.replace(text, planted))
    program = copy / "simulate"
    files = sorted(str(file) for file in (source / "tests" / "simulate").glob("*.cpp"))
    subprocess.run([compiler, "-std=c++20", "-O1", "-w", "-ffp-contract=off", f"-I{copy}/include", *files, "-o", program, "-ldl", "-pthread"], check=True)
    began = time.monotonic()
    ran = subprocess.run([program, simulation, "--seconds", str(SECONDS)], capture_output=True, text=True)
    if ran.returncode != 1:
        return f"not found within {SECONDS} s\n{ran.stdout[-2000:]}"
    sentence = next(line for line in ran.stdout.splitlines() if line.startswith("seed "))
    print(f"found    {name}: {time.monotonic() - began:.1f} s, {sentence[:180]}", flush=True)
    shutil.rmtree(copy)
    return None


def main():
    source, folder = Path(sys.argv[1]), Path(sys.argv[2])
    compiler = sys.argv[3] if len(sys.argv) > 3 else "c++"
    missed = 0
    for name in sys.argv[4:] or BUGS:
        if why := find(name, source, folder, compiler):
            missed += 1
            print(f"MISSED   {name}: {why}", flush=True)
    return missed


sys.exit(main())
