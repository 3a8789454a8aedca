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

JOB, ASYNC = "include/replicator/job/", "include/replicator/async/"
BUGS = {
    # name: (simulation, [(file, text, planted text), ...])
    "acknowledged_by_the_kernel": ("job", [  # the split brain of old: who has acknowledged that it is out, counts as out
        (JOB + "survivors.hpp", "        if (!on_this_machine(process)) return false;\n", ""),
        (JOB + "survivors.hpp", "    if (on_this_machine(process)) return dead_[process] || told ? Outside::gone_here : Outside::unknown;\n"
                                "    return dead_[process] ? Outside::gone : Outside::unknown;\n",
         "    return dead_[process] || told ? Outside::gone_here : Outside::unknown;\n")]),
    "half_goes_on": ("job", [(JOB + "epochs.hpp", "if (2 * members > epoch.size()) return true;", "if (2 * members >= epoch.size()) return true;")]),
    "proposed_is_confirmed": ("job", [(JOB + "epochs.hpp", "    proposed_.push_back(std::move(part));\n", "    proposed_.push_back(std::move(part));\n    confirm();\n")]),
    "a_smaller_part_outlives_the_dead": ("job", [(JOB + "epochs.hpp", "return here || 2 * members == epoch.size();", "return true;")]),
    "who_is_told_goes_on": ("job", [(JOB + "survivors.hpp", "if (told_) throw CommunicationError", "if (false) throw CommunicationError")]),
    "who_has_parted_is_not_looked_for": ("job", [(JOB + "survivors.hpp", "return !parted_[process] || epochs_.has(process);", "return !parted_[process];")]),
    "a_timeout_is_a_death": ("job", [(JOB + "survivors.hpp", "if (number == ECONNREFUSED) dead_[r] = true;", "if (number == ECONNREFUSED || (look && number != 0)) dead_[r] = true;")]),
    "a_claim_is_overwritten": ("job", [
        (JOB + "elastic/folder_arbiter.hpp", "const int refused = ::link(own.c_str(), path.c_str()) == 0 ? 0 : errno;", "const int refused = std::rename(own.c_str(), path.c_str()) == 0 ? 0 : errno;")]),
    "a_claim_in_the_etcd_is_not_looked_at": ("job", [
        (JOB + "elastic/etcd_arbiter.hpp", "if (retried(until, beat, [&] { return directory_->etcd().write_unless_changed(key, 0, claim_text(wanted)); })) return wanted;",
         "retried(until, beat, [&] { return directory_->etcd().write_unless_changed(key, 0, claim_text(wanted)); }); return wanted;")]),
    "the_smaller_part_is_as_quick": ("job", [(JOB + "rendezvous_server.hpp", "if (survivors_->lets_majority_go_first(here_)) return now >= until + options_.dead_after;", "")]),
    "an_answer_is_awaited_for_ever": ("job", [(JOB + "rendezvous_client.hpp", "if (!good || silent) return false;", "if (!good) return false;")]),
    "nobody_is_taken_in": ("job", [(JOB + "elastic/admission_server.hpp", "if (found == requests_.end()) return {};", "return {};")]),
    "silence_is_no_death": ("job", [(JOB + "job_thread.hpp", "else if (peer.lost == never && now - peer.heard > options_.dead_after)", "else if (false)")]),
    "back_to_the_newest_moment": ("job", [("include/replicator/elastic/rollback.hpp", "oldest = std::min(oldest, theirs[0]);", "oldest = std::max(oldest, theirs[0]);")]),
    "a_call_is_not_repeated": ("job", [("include/replicator/elastic/rollback.hpp", "return made.number < call; });", "return made.number <= call; });")]),
    "renamed_before_it_is_flushed": ("checkpoints", [("include/replicator/io/file.hpp", 'if (::fsync(file_->fd()) != 0) detail::fail(path_, "flush to the disk");', "")]),
    "the_name_is_not_flushed": ("checkpoints", [("include/replicator/io/file.hpp", "if (!detail::flush_folder(folder)) detail::fail", "if (false) detail::fail")]),
    "the_folder_is_not_flushed": ("checkpoints", [
        ("include/replicator/engine/state/checkpoint_folder.hpp", "static_cast<void>(io::detail::flush_folder(io::detail::folder_of(part)));", "")]),
    "a_short_write_is_taken_for_whole": ("checkpoints", [("include/replicator/io/file.hpp", "data = data.subspan(static_cast<std::size_t>(written));", "return;")]),
    "keeps_the_oldest": ("checkpoints", [
        ("include/replicator/engine/state/checkpoint_folder.hpp", "a.size() != b.size() ? a.size() > b.size() : a > b; });", "a.size() != b.size() ? a.size() > b.size() : a < b; });")]),
    "one_update_too_old": ("shards", [(ASYNC + "staleness.hpp", "others[i].first > *bound_) return", "others[i].first > *bound_ + 1) return")]),
    "updates_do_not_await_readers": ("shards", [(ASYNC + "shard.hpp", "if (writer_ >= 0 || readers_ > 0) return Held{writer_, false};", "if (writer_ >= 0) return Held{writer_, false};")]),
    "readers_do_not_await_updates": ("shards", [(ASYNC + "shard.hpp", "if (writer_ < 0) return std::nullopt;", "return std::nullopt;")]),
    "held_updates_are_forgotten": ("shards", [(ASYNC + "group_worker.hpp", "if (client && programs_.deployment().staleness) client->look();", "")]),
    "an_update_is_made_twice": ("shards", [(ASYNC + "shard_server.hpp", "programs_.update(shard, client.gradients, before); })) return false;",
                                            "programs_.update(shard, client.gradients, before), programs_.update(shard, client.gradients, before); })) return false;")]),
    "the_earlier_vote_counts": ("shards", [(ASYNC + "stop_agreement.hpp", "auto later = moment(a) < moment(b) ? b : a;", "auto later = moment(a) < moment(b) ? a : b;")]),
    "the_last_values_are_not_fetched": ("shards", [(ASYNC + "async_peers.hpp", "    if (takes_last_) fetch_all();\n", "")]),
    "one_device_finishes_for_all": ("shards", [(ASYNC + "shard_server.hpp", "if (std::all_of(clients_.begin(), clients_.end(), of_process)) {", "{")]),
    "a_report_counts_twice": ("shards", [(ASYNC + "async_progress.hpp", "    ++completed_;\n", "    completed_ += 2;\n")]),
}
SECONDS = 60
FLAGS = ["-std=c++20", "-O1", "-w", "-ffp-contract=off"]


def compiled(compiler, source, include, files, folder):
    """The objects of these files of tests/simulate."""
    objects = []
    for name in files:
        objects.append(folder / f"{name}.o")
        subprocess.run([compiler, *FLAGS, f"-I{source}/tests/simulate/substitutes", f"-I{include}", "-c", source / "tests" / "simulate" / f"{name}.cpp", "-o", objects[-1]], check=True)
    return objects


def find(name, source, folder, compiler, common):
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
    own = compiled(compiler, source, copy / "include", [simulation], copy)
    others = [common[other] for other in common if other != simulation]
    subprocess.run([compiler, *own, *others, "-o", program, "-ldl", "-pthread"], check=True)
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
    folder.mkdir(parents=True, exist_ok=True)
    files = sorted(file.stem for file in (source / "tests" / "simulate").glob("*.cpp"))
    common = dict(zip(files, compiled(compiler, source, source / "include", files, folder)))
    missed = 0
    for name in sys.argv[4:] or BUGS:
        if why := find(name, source, folder, compiler, common):
            missed += 1
            print(f"MISSED   {name}: {why}", flush=True)
    return missed


sys.exit(main())
