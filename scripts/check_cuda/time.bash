# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154  # scripts/check-cuda sets the variables and checks
# Measures steps of a ResNet-50 on the GPU, and of PyTorch beside them.

# show_machine: what is absent is no failure.
show_machine() {
  local tool
  nvidia-smi
  for tool in "${nvcc:-nvcc}" ncu nsys compute-sanitizer; do limited "$tool" --version 2> /dev/null | tail -n 2 || echo "$tool: absent"; done
  LD_LIBRARY_PATH=$plain_library_path python3 -c "import torch; print('PyTorch', torch.__version__, 'cuDNN', torch.backends.cudnn.version())"
  ldd "$hello"
  return 0
}
# time_step IMAGE_SIZE BATCH FLAGS...: images/s of whole training steps, in float32 unless the flags say otherwise.
time_step() {
  local output size=$1 batch=$2
  shift 2
  output=$(limited "$built/bench/resnet_step_cuda" --depth 50 --image-size "$size" --batch "$batch" --steps 20 --devices cuda:0 "$@") || return 1
  echo "$output"
  timed="ResNet-50 $*, ${size}x$size, batch $batch${REPLICATOR_CUDA_EXPRESSIONS:+, $REPLICATOR_CUDA_EXPRESSIONS expressions}: ${output%%$'\n'*}"
}
# check_time SECONDS NAME FUNCTION...: check, then reports what the function measured.
check_time() {
  check "$@" && report "timed   $timed"
}

time_interpreted_step() {
  REPLICATOR_CUDA_EXPRESSIONS=interpreted time_step "$@"
}
# time_convolutions IMAGE_SIZE BATCH PRECISION: those of a step, alone. Stores the line in $alone.
time_convolutions() {
  alone=$(limited "$built/bench/convolutions_cuda" --device cuda:0 --image-size "$1" --batch "$2" --precision "$3") || return 1
  timed="the convolutions of ResNet-50 $3 alone, ${1}x$1, batch $2: $alone"
  echo "$alone"
}
# share_of_limit IMAGE_SIZE BATCH PRECISION STEP: the share of the card's limit that STEP, a line of time_step, reaches: the
# convolutions $alone, plus the bytes of all other kernels at the speed of a memory copy.
share_of_limit() {
  local plan bytes
  plan=$(mktemp)
  limited "$built/bench/resnet_step_cuda" --depth 50 --image-size "$1" --batch "$2" --steps 0 --devices cuda:0 --precision "$3" --plan "$plan" > /dev/null &&
    bytes=$(python3 scripts/kernel_bytes.py "$plan" --without convolution)
  rm -f "$plan"
  [[ -n ${bytes:-} ]] || return 1
  timed="the limit of ResNet-50 $3, ${1}x$1, batch $2: $(awk -v step="$4" -v alone="$alone" -v bytes="$bytes" -v batch="$2" '
    BEGIN {
      match(step, /[0-9.]+ images\/s/); rate = substr(step, RSTART) + 0
      match(alone, /[0-9.]+ s by/); seconds = substr(alone, RSTART) + 0
      match(alone, /memory [0-9.e+]+/); memory = substr(alone, RSTART + 7) + 0
      limit = batch / (seconds + bytes / memory)
      printf "%.1f GB of other kernels; %.0f images/s, of which the step has %.2f", bytes / 1e9, limit, rate / limit
    }')"
  echo "$timed"
}
# kernel_table IMAGE_SIZE BATCH FLAG...: the kernels of an uncaptured step by time. Leaves ncu's lines beside the table.
kernel_table() {
  local lines table size=$1 batch=$2
  shift 2
  lines=$results/kernels_$size.csv
  rm -f "$lines"
  limited ncu --clock-control none --cache-control none --metrics gpu__time_duration.sum,dram__bytes.sum --csv --print-kernel-base demangled \
    --log-file "$lines" "$built/bench/resnet_step_cuda" --depth 50 --image-size "$size" --batch "$batch" --steps 1 --devices cuda:0 --no-capture "$@" || {
    tail -n 5 "$lines"
    return 1
  }
  table=$(python3 scripts/kernel_times.py "$lines") || return 1
  echo "$table"
  timed="kernels of ResNet-50 $*, ${size}x$size, batch $batch: ${table%%$'\n'*}"
}
# launch_gaps IMAGE_SIZE BATCH FLAG...: the share of the time from the first to the last kernel in which the GPU is
# idle.
launch_gaps() {
  local folder line status size=$1 batch=$2
  shift 2
  folder=$(mktemp -d)
  limited nsys profile --trace cuda,nvtx --cuda-graph-trace node --output "$folder/step" \
    "$built/bench/resnet_step_cuda" --depth 50 --image-size "$size" --batch "$batch" --steps 20 --devices cuda:0 "$@" > /dev/null &&
    limited nsys stats --report cuda_gpu_trace --format csv --output "$folder/step" "$folder/step.nsys-rep" > /dev/null &&
    line=$(python3 scripts/launch_gaps.py "$folder/step_cuda_gpu_trace.csv")
  status=$?
  rm -rf "$folder"
  timed="launch gaps of ResNet-50 $*, ${size}x$size, batch $batch: ${line:-}"
  return "$status"
}
# time_pytorch IMAGE_SIZE BATCH FLAG...: the same step in PyTorch with its own libraries, in float32 without TF32 unless the
# flags say otherwise.
time_pytorch() {
  local output size=$1 batch=$2
  shift 2
  output=$(LD_LIBRARY_PATH=$plain_library_path limited python3 bench/resnet_step.py --device cuda --image-size "$size" --batch "$batch" --steps 20 "$@") || return 1
  echo "$output"
  timed="PyTorch $*, ${size}x$size, batch $batch: ${output%%$'\n'*}"
}
# time_steps IMAGE_SIZE BATCH: the stage for one size of the pictures.
time_steps() {
  local at="${1}x$1" plain
  check_time 90 "a ResNet-50 at $at" time_step "$@" --precision bfloat16 && plain=$timed
  if torch_sees_gpu; then
    check_time 90 "PyTorch's at $at" time_pytorch "$@" --bfloat16
    check_time 180 "PyTorch's, compiled, at $at" time_pytorch "$@" --bfloat16 --compile
  else
    report "skipped PyTorch's steps at $at: python3 has no torch that sees a GPU"
  fi
  check_time 90 "a ResNet-50 at $at, nothing captured" time_step "$@" --precision bfloat16 --no-capture
  check_time 120 "a ResNet-50 at $at, fastest kernels" time_step "$@" --precision bfloat16 --fastest-kernels
  check_time 90 "a ResNet-50 at $at, fused statistics" time_step "$@" --precision bfloat16 --fuse-convolutions statistics
  check_time 90 "the convolutions alone at $at" time_convolutions "$@" bfloat16 &&
    [[ -n ${plain:-} ]] && check_time 90 "the share of the card's limit at $at" share_of_limit "$@" bfloat16 "$plain"
  if command -v ncu > /dev/null; then
    check_time 240 "kernels by time at $at" kernel_table "$@" --precision bfloat16
  else
    report "skipped kernels by time at $at: ncu is not on the PATH"
  fi
}
