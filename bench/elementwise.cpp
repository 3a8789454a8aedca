// SPDX-License-Identifier: Apache-2.0
// Times elementwise expressions and reductions on one core against hand-written fused loops of the same instruction
// level. The ratio is hand time / interpreter time: 1 means as fast as the hand-written loop. GB/s count every array
// once.
#include <ctime>

#include <cstdio>
#include <functional>
#include <initializer_list>
#include <vector>

#include <replicator/core/array.hpp>
#include <replicator/cpu/map.hpp>
#include <replicator/cpu/reduce.hpp>
#include <replicator/graph/choose_kernel.hpp>
#include <replicator/graph/map_gradient.hpp>

using namespace replicator;
using namespace replicator::detail;

namespace {

// CPU time of this thread. Time that other programs take on the core does not count; their use of the memory does.
double now() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double seconds(const std::function<void()>& f) {
  f();
  double best = 1e9;
  for (int i = 0; i < 11; ++i) {
    const double start = now();
    f();
    best = std::min(best, now() - start);
  }
  return best;
}

void report(const char* name, double bytes, const std::function<void()>& hand, const std::function<void()>& ours) {
  const double h = seconds(hand), o = seconds(ours);
  std::printf("%-44s hand %8.3f ms %6.1f GB/s   tiles %8.3f ms %6.1f GB/s   ratio %.2f\n", name, h * 1e3, bytes / h * 1e-9,
              o * 1e3, bytes / o * 1e-9, h / o);
}

Layout channels_in_blocks(const Shape& shape) {
  Layout layout;
  layout.plain = false;
  layout.blocks = 1;
  layout.axis[0] = 1;
  layout.size[0] = 16;
  const std::int64_t pixels = shape[2] * shape[3];
  layout.strides = {shape[1] * pixels, pixels * 16, shape[3] * 16, 16};
  layout.storage = shape.elements();
  return layout;
}

// A kernel with its buffers.
template <class Op>
class Prepared {
 public:
  Prepared(const Op& op, std::vector<TensorType> inputs, std::vector<Layout> offered, std::vector<const void*> in,
           std::vector<void*> out)
      : operation_{op} {
    const auto outputs = op.infer_shape(inputs);
    const KernelRequest request{operation_, inputs, outputs, offered, 1};
    executable_ = make_executable(DeviceKind::cpu, request);
    scratch_.resize(executable_->scratch_bytes + 64);
    for (const auto* p : in) in_.push_back(static_cast<const std::byte*>(p));
    for (auto* p : out) out_.push_back(static_cast<std::byte*>(p));
  }
  void operator()() {
    auto* aligned = scratch_.data() + (64 - reinterpret_cast<std::uintptr_t>(scratch_.data()) % 64) % 64;
    executable_->run({in_.data(), out_.data(), aligned, {}, nullptr});
  }

 private:
  AnyOperation operation_;
  std::unique_ptr<Executable> executable_;
  std::vector<std::byte> scratch_;
  std::vector<const std::byte*> in_;
  std::vector<std::byte*> out_;
};

// Sizes of the hand-written loops: images, channels, pixels, and `inner` channels of a block (16, or 1 for plain).
struct Sizes {
  std::int64_t n, c, pixels, inner;
};
template <std::int64_t inner, class F>
[[gnu::always_inline]] inline void for_channels(const Sizes& s, F f) {
  for (std::int64_t n = 0; n < s.n; ++n)
    for (std::int64_t c = 0; c < s.c / inner; ++c) f((n * (s.c / inner) + c) * s.pixels * inner, c * inner);
}

#define LEVELS(name, parameters, arguments)                                                         \
  [[gnu::target("avx512f"), gnu::flatten]] void name##_avx512 parameters { name##_body arguments; } \
  [[gnu::target("avx2"), gnu::flatten]] void name##_avx2 parameters { name##_body arguments; }      \
  void name##_baseline parameters { name##_body arguments; }                                        \
  void name parameters {                                                                            \
    switch (cpu::instruction_level()) {                                                             \
      case cpu::InstructionLevel::avx512: return name##_avx512 arguments;                           \
      case cpu::InstructionLevel::avx2: return name##_avx2 arguments;                               \
      default: return name##_baseline arguments;                                                    \
    }                                                                                               \
  }

template <std::int64_t inner>
[[gnu::always_inline]] inline void normalise_body(const Sizes& s, const float* x, const float* mean, const float* scale, const float* beta,
                                                  float* y) {
  for_channels<inner>(
      s, [&](std::int64_t at, std::int64_t c) __attribute__((always_inline)) {
        if constexpr (inner == 1) {
          const float m = mean[c], a = scale[c], b = beta[c];
          for (std::int64_t i = 0; i < s.pixels / 16; ++i)
#pragma GCC ivdep
            for (std::int64_t j = 0; j < 16; ++j) {
              const float v = (x[at + 16 * i + j] - m) * a + b;
              y[at + 16 * i + j] = v <= 0 ? 0 : v;
            }
        } else {
          for (std::int64_t p = 0; p < s.pixels; ++p)
#pragma GCC ivdep
            for (std::int64_t j = 0; j < inner; ++j) {
              const float v = (x[at + p * inner + j] - mean[c + j]) * scale[c + j] + beta[c + j];
              y[at + p * inner + j] = v <= 0 ? 0 : v;
            }
        }
      });
}
void normalise_blocked_body(const Sizes& s, const float* x, const float* m, const float* a, const float* b, float* y) {
  normalise_body<16>(s, x, m, a, b, y);
}
void normalise_plain_body(const Sizes& s, const float* x, const float* m, const float* a, const float* b, float* y) {
  normalise_body<1>(s, x, m, a, b, y);
}
LEVELS(normalise_blocked, (const Sizes& s, const float* x, const float* m, const float* a, const float* b, float* y), (s, x, m, a, b, y))
LEVELS(normalise_plain, (const Sizes& s, const float* x, const float* m, const float* a, const float* b, float* y), (s, x, m, a, b, y))

// sum(dz) and sum(dz * (x - mean)) with dz = dy * (z > 0), per channel
void sums_blocked_body(const Sizes& s, const float* dy, const float* z, const float* x, const float* mean, float* sum, float* dot) {
  for (std::int64_t c = 0; c < s.c; ++c) sum[c] = dot[c] = 0;
  for_channels<16>(
      s, [&](std::int64_t at, std::int64_t c) __attribute__((always_inline)) {
        float a[16]{}, b[16]{};
        for (std::int64_t p = 0; p < s.pixels; ++p)
#pragma GCC ivdep
          for (std::int64_t j = 0; j < 16; ++j) {
            const std::int64_t i = at + p * 16 + j;
            const float d = dy[i] * (0 < z[i] ? 1.0f : 0.0f);
            a[j] += d;
            b[j] += d * (x[i] - mean[c + j]);
          }
        for (std::int64_t j = 0; j < 16; ++j) sum[c + j] += a[j], dot[c + j] += b[j];
      });
}
LEVELS(sums_blocked,
       (const Sizes& s, const float* dy, const float* z, const float* x, const float* mean, float* sum, float* dot),
       (s, dy, z, x, mean, sum, dot))

// dx = scale * (dy * (z > 0) - a - (x - mean) * b)
void gradient_blocked_body(const Sizes& s, const float* dy, const float* z, const float* x, const float* const* k, float* dx) {
  const float *mean = k[0], *scale = k[1], *a = k[2], *b = k[3];
  for_channels<16>(
      s, [&](std::int64_t at, std::int64_t c) __attribute__((always_inline)) {
        for (std::int64_t p = 0; p < s.pixels; ++p)
#pragma GCC ivdep
          for (std::int64_t j = 0; j < 16; ++j) {
            const std::int64_t i = at + p * 16 + j;
            dx[i] = scale[c + j] * ((dy[i] * (0 < z[i] ? 1.0f : 0.0f) - a[c + j]) - (x[i] - mean[c + j]) * b[c + j]);
          }
      });
}
LEVELS(gradient_blocked, (const Sizes& s, const float* dy, const float* z, const float* x, const float* const* k, float* dx), (s, dy, z, x, k, dx))

void momentum_body(std::int64_t n, const float* w, const float* g, const float* v, float* w2, float* v2) {
  for (std::int64_t i = 0; i < n; i += 16)
#pragma GCC ivdep
    for (std::int64_t j = i; j < i + 16; ++j) {
      const float next = 0.9f * v[j] + (g[j] + 1e-4f * w[j]);
      v2[j] = next;
      w2[j] = w[j] - 0.1f * next;
    }
}
LEVELS(momentum, (std::int64_t n, const float* w, const float* g, const float* v, float* w2, float* v2), (n, w, g, v, w2, v2))

void add_rectify_body(std::int64_t n, const float* a, const float* b, float* y) {
  for (std::int64_t i = 0; i < n; i += 16)
#pragma GCC ivdep
    for (std::int64_t j = i; j < i + 16; ++j) {
      const float s = a[j] + b[j];
      y[j] = s <= 0 ? 0 : s;
    }
}
LEVELS(add_rectify, (std::int64_t n, const float* a, const float* b, float* y), (n, a, b, y))

void total_body(std::int64_t n, const float* x, float* y) {
  float lanes[64]{};
  for (std::int64_t i = 0; i < n; i += 64)
#pragma GCC ivdep
    for (std::int64_t j = 0; j < 64; ++j) lanes[j] += x[i + j];
  for (int j = 1; j < 64; ++j) lanes[0] += lanes[j];
  *y = lanes[0];
}
LEVELS(total, (std::int64_t n, const float* x, float* y), (n, x, y))

Expression inputs_only(std::uint16_t n) {
  Expression e;
  e.inputs = n;
  for (std::uint16_t i = 0; i < n; ++i) e.input(i);
  return e;
}
ExpressionPtr share(Expression e) { return std::make_shared<const Expression>(std::move(e)); }

// Buffers begin at cache lines, as the planner's do.
class Buffer {
 public:
  explicit Buffer(std::size_t n) : array_{Shape{static_cast<std::int64_t>(n)}} {}
  float* data() { return array_.data(); }
  const float* data() const { return array_.data(); }
  float* begin() { return array_.begin(); }
  float* end() { return array_.end(); }

 private:
  Array<float> array_;
};

Buffer random_values(std::size_t n) {
  Buffer x(n);
  std::uint32_t state = 1;
  for (auto& v : x) v = static_cast<float>((state = state * 1664525u + 1013904223u) >> 8) * 0x1p-23f - 1.0f;
  return x;
}

void batch_norm(std::int64_t n, std::int64_t channels, std::int64_t side) {
  const Shape shape{n, channels, side, side};
  const Shape per_channel{channels, 1, 1};
  const Sizes sizes{n, channels, side * side, 16};
  const auto count = static_cast<std::size_t>(shape.elements());
  const auto x = random_values(count), dy = random_values(count), z = random_values(count), k = random_values(static_cast<std::size_t>(channels));
  Buffer y(count), y2(count);
  const TensorType full{DType::float32, shape}, channel{DType::float32, per_channel};
  const Layout blocks = channels_in_blocks(shape);
  std::printf("[%ld, %ld, %ld, %ld]\n", static_cast<long>(n), static_cast<long>(channels), static_cast<long>(side), static_cast<long>(side));
  using enum ScalarOp;

  Expression e = inputs_only(4);
  e.outputs = {e.apply(rectify, e.apply(add, e.apply(multiply, e.apply(subtract, 0, 1), 2), 3))};
  const Map normalise{share(e), shape, {DType::float32}};
  for (const bool plain : {false, true}) {
    const Layout layout = plain ? Layout{} : blocks;
    Prepared ours{normalise, {full, channel, channel, channel}, {layout, {}, {}, {}}, {x.data(), k.data(), k.data(), k.data()}, {y.data()}};
    report(
        plain ? "  normalise + relu, plain" : "  normalise + relu, blocked", 8.0 * static_cast<double>(count), [&] { (plain ? normalise_plain : normalise_blocked)(sizes, x.data(), k.data(), k.data(), k.data(), y2.data()); }, [&] { ours(); });
  }

  e = inputs_only(4);  // dy, z, x, mean
  const auto zero = e.constant(0);
  const auto dz = e.apply(multiply, 0, e.apply(less, zero, 1));
  e.outputs = {dz, e.apply(multiply, dz, e.apply(subtract, 2, 3))};
  const Reduce sums{ReduceKind::sum, share(e), {0, 2, 3}, shape, {DType::float32, DType::float32}};
  std::vector<float> a(static_cast<std::size_t>(channels)), b(a), a2(a), b2(a);
  Prepared two_sums{sums, {full, full, full, channel}, {blocks, blocks, blocks, {}}, {dy.data(), z.data(), x.data(), k.data()}, {a.data(), b.data()}};
  report(
      "  two sums of the gradient, blocked", 12.0 * static_cast<double>(count),
      [&] { sums_blocked(sizes, dy.data(), z.data(), x.data(), k.data(), a2.data(), b2.data()); }, [&] { two_sums(); });

  e = inputs_only(7);  // dy, z, x, mean, scale, a, b
  const auto dz2 = e.apply(multiply, 0, e.apply(less, e.constant(0), 1));
  e.outputs = {e.apply(multiply, 4, e.apply(subtract, e.apply(subtract, dz2, 5), e.apply(multiply, e.apply(subtract, 2, 3), 6)))};
  const Map gradient{share(e), shape, {DType::float32}};
  Prepared dx{gradient, {full, full, full, channel, channel, channel, channel}, {blocks, blocks, blocks, {}, {}, {}, {}}, {dy.data(), z.data(), x.data(), k.data(), k.data(), k.data(), k.data()}, {y.data()}};
  const float* constants[] = {k.data(), k.data(), k.data(), k.data()};
  report(
      "  gradient of the input, blocked", 16.0 * static_cast<double>(count),
      [&] { gradient_blocked(sizes, dy.data(), z.data(), x.data(), constants, y2.data()); }, [&] { dx(); });

  e = inputs_only(2);
  e.outputs = {e.apply(rectify, e.apply(add, 0, 1))};
  Prepared residual{Map{share(e), shape, {DType::float32}}, {full, full}, {blocks, blocks}, {x.data(), z.data()}, {y.data()}};
  report(
      "  residual add + relu", 12.0 * static_cast<double>(count),
      [&] { add_rectify(static_cast<std::int64_t>(count), x.data(), z.data(), y2.data()); }, [&] { residual(); });

  e = inputs_only(1);
  e.outputs = {0};
  float result;
  Prepared sum{Reduce{ReduceKind::sum, share(e), {0, 1, 2, 3}, shape, {DType::float32}}, {full}, {{}}, {x.data()}, {&result}};
  report(
      "  sum of everything", 4.0 * static_cast<double>(count),
      [&] { total(static_cast<std::int64_t>(count), x.data(), &result); }, [&] { sum(); });
}

void optimizer(std::int64_t n) {
  const auto w = random_values(static_cast<std::size_t>(n)), g = w, v = w;
  Buffer w2(w), v2(w);
  using enum ScalarOp;
  Expression e = inputs_only(3);
  const auto next = e.apply(add, e.apply(multiply, e.constant(0.9), 2), e.apply(add, 1, e.apply(multiply, e.constant(1e-4), 0)));
  e.outputs = {e.apply(subtract, 0, e.apply(multiply, e.constant(0.1), next)), next};
  const TensorType type{DType::float32, {n}};
  Prepared ours{Map{share(e), {n}, {DType::float32, DType::float32}},
                {type, type, type},
                {{}, {}, {}},
                {w.data(), g.data(), v.data()},
                {w2.data(), v2.data()}};
  std::printf("[%ld]\n", static_cast<long>(n));
  report(
      "  momentum", 20.0 * static_cast<double>(n), [&] { momentum(n, w.data(), g.data(), v.data(), w2.data(), v2.data()); }, [&] { ours(); });
}

// Nanoseconds per element of functions that are not memory-bound. There is no hand-written loop to compare with.
void functions() {
  constexpr std::int64_t n = 1 << 16;
  const auto x = random_values(n);
  Buffer y(n);
  std::printf("float32[65536], nanoseconds per element\n");
  for (int op = 2; op < static_cast<int>(ScalarOp::select); ++op) {
    if (needs_integers(static_cast<ScalarOp>(op))) continue;
    Expression e = inputs_only(1);
    e.outputs = {e.apply(static_cast<ScalarOp>(op), 0, operands_of(static_cast<ScalarOp>(op)) > 1 ? 0 : 0)};
    const TensorType type{DType::float32, {n}};
    Prepared ours{Map{share(e), {n}, {DType::float32}}, {type}, {{}}, {x.data()}, {y.data()}};
    std::printf("  %s %.3f\n", std::string{name_of(static_cast<ScalarOp>(op))}.c_str(), seconds([&] { ours(); }) / n * 1e9);
  }
}

void rows() {
  std::printf("max of rows\n");
  for (const std::int64_t length : {10, 100, 1000}) {
    const std::int64_t n = 256;
    const auto x = random_values(static_cast<std::size_t>(n * length));
    std::vector<float> y(static_cast<std::size_t>(n));
    Expression e = inputs_only(1);
    e.outputs = {0};
    const TensorType type{DType::float32, {n, length}};
    Prepared ours{Reduce{ReduceKind::max, share(e), {1}, {n, length}, {DType::float32}}, {type}, {{}}, {x.data()}, {y.data()}};
    const double s = seconds([&] { ours(); });
    std::printf("  [%ld, %ld] %.2f us, %.1f ns per row\n", static_cast<long>(n), static_cast<long>(length), s * 1e6,
                s / static_cast<double>(n) * 1e9);
  }
}

}  // namespace

int main() {
  std::printf("instruction level %s\n", std::string{name_of(cpu::instruction_level())}.c_str());
  batch_norm(16, 256, 56);
  batch_norm(4, 512, 28);
  batch_norm(4, 2048, 7);
  optimizer(25'000'000);
  optimizer(50'000);
  rows();
  functions();
}
