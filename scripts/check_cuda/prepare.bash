# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154  # scripts/check-cuda sets the variables and checks
# Builds the programs, and makes the folder for a bare GPU machine.

targets=(bench_resnet_step_cuda bench_convolutions_cuda resnet_gradients_cuda resnet50_cuda hello_cuda test_cuda)
programs=(bench/resnet_step_cuda bench/convolutions_cuda examples/resnet_gradients_cuda examples/resnet50_cuda examples/hello_cuda tests/test_cuda)
scripts=(scripts/check-cuda scripts/compare_resnet50.py scripts/kernel_bytes.py scripts/kernel_times.py scripts/launch_gaps.py
  scripts/check_cuda/prepare.bash scripts/check_cuda/correct.bash scripts/check_cuda/time.bash bench/resnet_step.py bench/turns.py)
# archive NAME: the path of the compiler's static library, or nothing.
archive() {
  local path
  path=$("${CXX:-c++}" -print-file-name="$1")
  [[ $path == /* ]] && realpath "$path"
}
# configure FLAG...: with libjpeg-turbo only as a static library. Pictures are what resnet50 trains on.
configure() {
  local generator=() components=() name folders jpeg
  command -v ninja > /dev/null && generator=(-G Ninja)
  printf -v folders '%s;' "${library_folders[@]}"
  for name in PNG ONEDNN UCX PMIX MUJOCO EGL C; do components+=("-DREPLICATOR_WITH_$name=OFF"); done
  if jpeg=$(archive libturbojpeg.a); then components+=("-DREPLICATOR_TURBOJPEG_LIBRARY=$jpeg"); else components+=(-DREPLICATOR_WITH_JPEG=OFF); fi
  limited cmake -S . -B "$built" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release "-DCMAKE_CXX_FLAGS_RELEASE=-O2 -DNDEBUG" -DREPLICATOR_WITH_CUDA=ON \
    -DREPLICATOR_ONLY_TESTS=cuda "-DREPLICATOR_CUDA_FOLDERS=${folders%;}" "${components[@]}" "$@" "${flags[@]}"
}
# Machine code for Hopper alone, in the smallest form: six times 0.4 MiB in place of 2.9. The runtime libraries of the compiler
# become part of the programs; their names stay hidden, so that cuDNN takes its own.
configure_for_bare_machine() {
  local openmp
  openmp=$(archive libgomp.a) || { echo "the compiler has no static libgomp, which a program for another machine needs"; return 1; }
  configure -DCMAKE_CUDA_ARCHITECTURES=90-real -DCMAKE_CUDA_FLAGS=--compress-mode=size -DCMAKE_SKIP_RPATH=ON "-DOpenMP_gomp_LIBRARY=$openmp" \
    "-DCMAKE_EXE_LINKER_FLAGS=-static-libstdc++ -static-libgcc -Wl,--exclude-libs,ALL"
}
# build TARGET: if CMake has no such target, says why.
build() {
  local known
  known=$(cmake --build "$built" --target help)
  if ! grep -qwF "$1" <<< "$known"; then
    echo "CMake left $1 out; what is absent:"
    cmake -S . -B "$built" | grep -E "is absent|left out|not found"
    [[ $1 == test_cuda ]] && echo "without Catch2 there are no tests: see scripts/check-cuda --help"
    return 1
  fi
  limited cmake --build "$built" --parallel "$(nproc)" --target "$1"
}

prepared=$built/prepared
collect() {
  local file
  rm -rf "$prepared"
  for file in "${programs[@]}"; do install -D --strip "$built/$file" "$prepared/$file" || return 1; done
  for file in "${scripts[@]}"; do install -D "$file" "$prepared/$file" || return 1; done
  (cd "$prepared" && du --apparent-size -k "${programs[@]}")
}
# What every machine with the toolkit, and cuDNN in Python's packages, has.
allowed='ld-linux-x86-64\.so\.2|lib(c|m|dl|rt|pthread)\.so\.[0-9]+|libcudnn\.so\.9|libcublasLt\.so\.13|libnvrtc\.so\.13'
needs_nothing_else() {
  local file all foreign status=0
  for file in "${programs[@]}"; do
    all=$(readelf --dynamic --wide "$prepared/$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
    echo "$file needs ${all//$'\n'/ }"
    foreign=$(grep -vxE "$allowed" <<< "$all") && echo "$file needs what a bare machine lacks: ${foreign//$'\n'/ }" && status=1
    ldd "$prepared/$file" | grep "not found" && status=1
  done
  echo "the newest glibc they need: $(cd "$prepared" && readelf --version-info --wide "${programs[@]}" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1)"
  return $status
}
is_small() {
  local kib
  kib=$(du --apparent-size -sk "$prepared" | cut -f 1)
  echo "$((kib / 1024)) MiB"
  ((kib <= 55 * 1024)) || { echo "that is more than 55 MiB"; return 1; }
}
# refuses COMMAND...: says why it cannot use a GPU.
refuses() {
  local output
  output=$(limited "$@" 2>&1) && { echo "it did not fail"; return 1; }
  grep -F "was asked for, but" <<< "$output"
}
