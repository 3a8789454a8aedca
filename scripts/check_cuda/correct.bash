# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154  # scripts/check-cuda sets the variables and checks
# Checks of what the GPU computes.

# digest_on DEVICES FLAGS...: stores the digest that hello prints on these devices in $digest.
digest_on() {
  local output
  output=$(limited "$hello" --replicas 8 --devices "$@") || return 1
  digest=$(sed -n 's/^digest: //p' <<< "$output")
  echo "$*: $digest"
  [[ -n $digest ]]
}
links() {
  ldd "$hello" | grep "lib$1\.so" || { echo "$hello does not link lib$1: it was not found while configuring"; return 1; }
  ! ldd "$hello" | grep -q "lib$1\.so.*not found"
}

# run_tests SPEC COMMAND...: runs the tests that match Catch2's SPEC, under COMMAND if given.
tests=$built/tests/test_cuda
run_tests() {
  [[ -x $tests ]] || { echo "there is no $tests: was Catch2 found while configuring?"; return 1; }
  limited "${@:2}" "$tests" --warn NoTests --filenames-as-tags "$1"
}

same_digest() {
  digest_on "$@" && [[ $digest == "$expected" ]]
}
interpreted_digest() {
  REPLICATOR_CUDA_EXPRESSIONS=interpreted same_digest cuda:0
}
# hello has 20 steps, and writes the checkpoint of the first ten before the eleventh.
resumed_digest() {
  local folder status
  folder=$(mktemp -d)
  same_digest cuda:0 --checkpoint "$folder" --every 10 && ls "$folder"/*.safetensors && same_digest cuda:0x2 --checkpoint "$folder" --resume
  status=$?
  rm -rf "$folder"
  return $status
}
# Two processes on one GPU, or on two where there are two. Their values must not pass the host's memory.
processes_digest() {
  local folder status gpus
  folder=$(mktemp -d)
  gpus=$(nvidia-smi --query-gpu=index --format=csv,noheader 2> /dev/null | wc -l)
  export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + RANDOM % 10000))
  RANK=1 limited "$hello" --replicas 8 --devices "cuda:$((gpus > 1))" --plan "$folder/plan.json" > "$folder/process_1" 2>&1 &
  RANK=0 same_digest cuda:0 --plan "$folder/plan.json"
  status=$?
  wait $! || status=1
  unset WORLD_SIZE MASTER_ADDR MASTER_PORT
  sed 's/^/process 1: /' "$folder/process_1"
  [[ -s $folder/plan.json ]] || { echo "there is no plan"; status=1; }
  grep -o "through the host's memory[^\"]*" "$folder/plan.json" && status=1
  rm -rf "$folder"
  return $status
}
train_on_pictures() {
  local folder status
  folder=$(mktemp -d)
  limited "$built/examples/resnet50_cuda" --depth 18 --image-size 32 --global-batch 16 --steps 3 --replicas 4 --devices cuda:0x2 --synthetic-dir "$folder"
  status=$?
  rm -rf "$folder"
  return $status
}
# pytorch_gradients FLAG...: each with its own libraries.
pytorch_gradients() {
  local program status
  program=$(mktemp)
  printf '#!/usr/bin/env bash\nLD_LIBRARY_PATH=%q exec %q "$@"\n' "$LD_LIBRARY_PATH" "$built/examples/resnet_gradients_cuda" > "$program"
  chmod +x "$program"
  LD_LIBRARY_PATH=$plain_library_path limited python3 scripts/compare_resnet50.py --program "$program" --devices cuda:0 --batch 8 "$@"
  status=$?
  rm -f "$program"
  return $status
}
torch_sees_gpu() {
  LD_LIBRARY_PATH=$plain_library_path python3 -c "import sys, torch; sys.exit(not torch.cuda.is_available())" 2> /dev/null
}

# sanitize TOOL: does not report failed API calls, because the library handles them (memory that cannot be pinned, for
# example).
sanitize() {
  if ! command -v compute-sanitizer > /dev/null; then
    report "skipped compute-sanitizer $1: it is not on the PATH"
    return
  fi
  local under=(compute-sanitizer --tool "$1" --error-exitcode 1)
  [[ $1 == memcheck ]] && under+=(--report-api-errors no)
  check 120 "compute-sanitizer $1, training" "${under[@]}" "$hello" --replicas 4 --devices cuda:0x2
  check 300 "compute-sanitizer $1, our kernels" run_tests "[#test_cuda_kernels]~*library*,[#test_cuda_layers]~*library*,[#test_cuda_sorted]" "${under[@]}"
}
# ten_runs DEVICES: one digest.
ten_runs() {
  local run
  digest_on "$1" && expected=$digest || return 1
  for run in {2..10}; do same_digest "$1" || return 1; done
}
