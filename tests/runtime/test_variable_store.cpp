// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <replicator/cpu/draw_first_values.hpp>
#include <replicator/graph/graph.hpp>
#include <replicator/nn/initialisers.hpp>
#include <replicator/runtime/variable_store.hpp>

#include "../support/errors.hpp"
#include "../support/memory_in_use.hpp"

namespace test_variable_store {

using namespace replicator;
using namespace replicator::detail;

namespace {

VariableDeclaration declaration(const std::string& name, Initializer initializer, Shape shape = {1000},
                                VariableKind kind = VariableKind::mirrored, DType dtype = DType::float32) {
  return {name, {dtype, shape}, kind, true, std::move(initializer), Location{"train.cpp", 12}};
}
std::vector<float> floats(const AnyArray& array) {
  const auto values = array.as<float>();
  return {values.begin(), values.end()};
}
std::vector<float> initial(const std::string& name, std::uint64_t seed,
                           Initializer initializer = Initializer::normal(0, 1)) {
  return floats(initial_value(declaration(name, std::move(initializer)), seed));
}

}  // namespace

TEST_CASE("first values are a function of seed and name") {
  CHECK(initial("w", 1) == initial("w", 1));
  CHECK(initial("w", 1) != initial("w", 2));
  CHECK(initial("w", 1) != initial("v", 1));
  CHECK(initial("w", 1, Initializer::uniform(0, 1)) == initial("w", 1, Initializer::uniform(0, 1)));
}

TEST_CASE("a truncated normal is the normal one, where that lies within two deviations; the rest is drawn again") {
  for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16}) {
    const auto values = [&](Initializer initializer) {
      const auto array = initial_value(declaration("w", std::move(initializer), {50000}, VariableKind::mirrored, dtype), 3);
      std::vector<double> result;
      visit_dtype(dtype, [&]<class T>() {
        for (const auto value : array.as<T>()) result.push_back(static_cast<double>(value));
      });
      return result;
    };
    const auto normal = values(Initializer::normal(1, 0.5)), cut = values(nn::truncated_normal(1, 0.5));
    double squares = 0;
    for (std::size_t i = 0; i < cut.size(); ++i) {
      if (dtype != DType::bfloat16 && std::abs(normal[i] - 1) < 0.999999) REQUIRE(cut[i] == normal[i]);
      REQUIRE(std::abs(cut[i] - 1) <= 1);
      squares += (cut[i] - 1) * (cut[i] - 1);
    }
    CHECK(std::sqrt(squares / 50000) == Approx(0.8796 * 0.5).epsilon(0.01));
  }
}

TEST_CASE("an orthogonal weight has orthonormal rows, or columns if there are more rows, times its gain") {
  for (const Shape& shape : {Shape{5, 5}, Shape{3, 17}, Shape{40, 6}, Shape{4, 2, 3, 3}, Shape{1, 9}, Shape{9, 1}}) {
    const auto array = initial_value(declaration("w", nn::orthogonal(1.5), shape, VariableKind::mirrored, DType::float64), 3);
    const auto w = array.as<double>();
    const auto rows = static_cast<std::size_t>(shape[0]), columns = w.size() / rows;
    const bool wide = rows <= columns;
    for (std::size_t a = 0; a < std::min(rows, columns); ++a)
      for (std::size_t b = 0; b < std::min(rows, columns); ++b) {
        double product = 0;
        for (std::size_t i = 0; i < std::max(rows, columns); ++i)
          product += wide ? w[a * columns + i] * w[b * columns + i] : w[i * columns + a] * w[i * columns + b];
        CHECK(product == Approx(a == b ? 2.25 : 0).margin(1e-14));
      }
  }
}

TEST_CASE("an orthogonal weight is the Q of the normal numbers of its name, where the diagonal of R is positive") {
  const Shape shape{4, 7};
  const auto of = [&](Initializer initializer) {
    const auto array = initial_value(declaration("w", std::move(initializer), shape, VariableKind::mirrored, DType::float64), 3);
    const auto values = array.as<double>();
    return std::vector<double>(values.begin(), values.end());
  };
  const auto q = of(nn::orthogonal()), a = of(Initializer::normal(0, 1));
  const auto product = [&](std::size_t i, std::size_t j) {
    double sum = 0;
    for (std::size_t k = 0; k < 7; ++k) sum += q[i * 7 + k] * a[j * 7 + k];
    return sum;
  };
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(product(i, i) > 0);
    for (std::size_t j = 0; j < i; ++j) CHECK(std::abs(product(i, j)) < 1e-14);  // a_j lies in the span of the first rows
  }
  CHECK(q == of(nn::orthogonal()));
}

TEST_CASE("the bits of an orthogonal weight do not depend on the instruction level") {
  std::vector<double> plain(6 * 24), best(plain.size());
  cpu::draw_normal(std::span{plain}, 1, 2, 3, 0, 1);
  best = plain;
  for (std::size_t row = 0; row < 6; ++row) cpu::detail::orthogonalise_row_baseline(plain.data(), row, 24);
  if (cpu::instruction_level() != cpu::InstructionLevel::baseline)
    for (std::size_t row = 0; row < 6; ++row) cpu::detail::orthogonalise_row_avx2(best.data(), row, 24);
  else best = plain;
  CHECK(plain == best);
}

TEST_CASE("a variable that cannot be orthogonal is refused where it is declared") {
  Graph graph;
  const auto refused = [&](Shape shape, DType dtype, Initializer initializer) {
    return test::error_of([&] { graph.declare(declaration("w", initializer, shape, VariableKind::mirrored, dtype)); });
  };
  const std::string start = "the variable \"w\" at train.cpp:12 is to begin ";
  CHECK(refused({5}, DType::float32, nn::orthogonal()) == start + "orthogonal, but it is float32[5]: only a floating type with two axes or more can");
  CHECK(refused({5, 5}, DType::int32, nn::orthogonal()) == start + "orthogonal, but it is int32[5, 5]: only a floating type with two axes or more can");
  CHECK(refused({5, 5}, DType::float32, nn::orthogonal(INFINITY)) == start + "orthogonal with gain inf: the gain must be finite");
  CHECK(refused({5}, DType::float32, nn::truncated_normal(0, -1)) ==
        start + "normal with mean 0 and standard deviation -1: both must be finite, the latter not negative");
  CHECK(nn::orthogonal(2).text() == "orthogonal with gain 2");
  CHECK(nn::truncated_normal(0, 0.02).text() == "normal with mean 0 and standard deviation 0.02, cut at two of them");
}

TEST_CASE("first values have the distribution asked for") {
  const auto normal = initial("w", 3, Initializer::normal(2, 0.5)),
             uniform = initial("w", 3, Initializer::uniform(-1, 3));
  const auto moments = [](const std::vector<float>& values) {
    double sum = 0, squares = 0;
    for (const double value : values) sum += value, squares += value * value;
    const double mean = sum / static_cast<double>(values.size());
    return std::pair{mean, std::sqrt(squares / static_cast<double>(values.size()) - mean * mean)};
  };
  CHECK(moments(normal).first == Approx(2).margin(0.08));
  CHECK(moments(normal).second == Approx(0.5).margin(0.06));
  CHECK(moments(uniform).first == Approx(1).margin(0.2));
  CHECK(moments(uniform).second == Approx(4 / std::sqrt(12.0)).margin(0.1));
  for (const float value : uniform) CHECK((value >= -1 && value <= 3));
}

TEST_CASE("an element's first value is decided by its own words of the stream, whatever comes after it") {
  Hasher name;
  name.text("w");
  const auto stream = [&] { return PhiloxStream{3, name.result().low, 0x696E6974}; };
  const auto normal = initial("w", 3, Initializer::normal(2, 0.5)), uniform = initial("w", 3, Initializer::uniform(-1, 3));
  auto words = stream();
  for (const float value : uniform) REQUIRE(value == static_cast<float>(-1 + 4 * ((words.next() + 0.5) * 0x1p-32)));
  words = stream();
  for (const float value : normal) {  // by Box and Muller; logarithm and cosine are the C library's here
    const double radius = std::sqrt(-2 * std::log((words.next() + 0.5) * 0x1p-32));
    REQUIRE(value == Approx(2 + 0.5 * radius * std::cos(2 * 3.141592653589793 * (words.next() * 0x1p-32))).epsilon(1e-6));
  }
  for (const std::int64_t count : {1, 31, 32, 33, 63, 64, 65, 999}) {
    const auto first = [count](Initializer initializer) { return floats(initial_value(declaration("w", std::move(initializer), {count}), 3)); };
    CHECK(first(Initializer::normal(2, 0.5)) == std::vector<float>(normal.begin(), normal.begin() + count));
    CHECK(first(Initializer::uniform(-1, 3)) == std::vector<float>(uniform.begin(), uniform.begin() + count));
  }
}

TEST_CASE("first values have the same bits at every instruction level") {
  using cpu::InstructionLevel;
  const auto compare = [](auto wide, auto baseline, double a, double b) {
    for (std::uint32_t key = 0; key < 1000; ++key) {
      cpu::detail::PhiloxWords words;
      cpu::detail::philox_tile_baseline({key, 1, 2, 3}, {key, 5}, words);
      cpu::detail::DrawnTile found{}, expected{};
      wide(words, a, b, found);
      baseline(words, a, b, expected);
      REQUIRE(found == expected);
    }
  };
  if (cpu::instruction_level() == InstructionLevel::baseline) return;
  compare(&cpu::detail::draw_tile_avx2<true>, &cpu::detail::draw_tile_baseline<true>, 2, 0.5);
  compare(&cpu::detail::draw_tile_avx2<false>, &cpu::detail::draw_tile_baseline<false>, -1, 3);
  if (cpu::instruction_level() == InstructionLevel::avx2) return;
  compare(&cpu::detail::draw_tile_avx512<true>, &cpu::detail::draw_tile_baseline<true>, 2, 0.5);
  compare(&cpu::detail::draw_tile_avx512<false>, &cpu::detail::draw_tile_baseline<false>, -1, 3);
}

TEST_CASE("a constant, and a value that is given, are taken as they are in every dtype") {
  for (const float value : initial("w", 1, Initializer::constant(3))) CHECK(value == 3);
  CHECK(initial_value(declaration("n", Initializer::ones(), {2}, VariableKind::mirrored, DType::int64), 0)
            .as<std::int64_t>()[1] == 1);
  const Array<float> given{{3}, {1, 2, 3}};
  CHECK(floats(initial_value(declaration("w", Initializer::value(given), {3}), 9)) ==
        std::vector<float>{1, 2, 3});
}

TEST_CASE("a first value of another type is refused") {
  CHECK_THROWS_WITH(initial_value(declaration("w", Initializer::value(Array<float>{{2}}), {3}), 0),
                    "\"w\" is float32[3] (declared at train.cpp:12), but its first value is float32[2]");
}

TEST_CASE("a mirrored variable has a copy for each device, a replica-local one for each replica, all alike at first") {
  VariableStore store{7, 2, 5};
  store.declare(declaration("w", Initializer::normal(0, 1), {3}));
  store.declare(declaration("s", Initializer::normal(0, 1), {3}, VariableKind::replica_local));
  CHECK(floats(store.value("w", 0)) == floats(store.value("w", 1)));
  CHECK(floats(store.value("s", 0)) == floats(store.value("s", 4)));
  CHECK(store.data("w", 0) != store.data("w", 1));
  CHECK(store.data("s", 0) != store.data("s", 4));
  CHECK_THROWS(store.value("w", 2));
  CHECK_THROWS(store.value("s", 5));
}

TEST_CASE("what replicas draw for themselves depends on the replica, and not on the process that holds it") {
  auto own = declaration("s", Initializer::normal(0, 1), {3}, VariableKind::replica_local);
  own.apart = true;
  VariableStore whole{7, 1, 4}, upper{7, 1, 2, 2};
  whole.declare(own);
  upper.declare(own);
  std::set<std::vector<float>> values;
  for (int replica = 0; replica < 4; ++replica) values.insert(floats(whole.value("s", replica)));
  CHECK(values.size() == 4);
  CHECK(floats(upper.value("s", 0)) == floats(whole.value("s", 2)));
  CHECK(floats(upper.value("s", 1)) == floats(whole.value("s", 3)));
}

TEST_CASE("large variables of zeros take no memory until they are written to, and each copy has its own") {
  constexpr std::int64_t count = 8 << 20;  // 32 MiB
  VariableStore store{7, 2, 1};
  const auto before = test::resident_bytes();
  store.declare(declaration("w/momentum", Initializer::zeros(), {count}));
  CHECK(test::resident_bytes() - before < 16 << 20);
  store.overwrite("w/momentum", 0).as<float>()[count - 1] = 1;
  CHECK(store.value("w/momentum", 1).as<float>()[count - 1] == 0);
  CHECK(test::resident_bytes() - before < 24 << 20);
}

TEST_CASE("large variables have the first values of small ones, in each copy") {
  VariableStore store{7, 2, 1};
  constexpr std::int64_t count = 600'000;  // 2.3 MiB
  store.declare(declaration("w", Initializer::normal(0, 1), {count}));
  store.declare(declaration("ones", Initializer::ones(), {count}));
  store.declare(declaration("negative", Initializer::constant(-0.0), {count}));
  const auto w = floats(store.value("w", 0)), ones = floats(store.value("ones", 1));
  CHECK(std::vector<float>(w.begin(), w.begin() + 1000) == initial("w", 7));
  CHECK(w == floats(store.value("w", 1)));
  CHECK(std::count(ones.begin(), ones.end(), 1.0f) == count);
  CHECK(std::signbit(store.value("negative", 1).as<float>()[count - 1]));
}

TEST_CASE("a variable that came with the state of another process takes the initialiser of the program that declares it") {
  VariableStore store{7, 1, 2};
  auto received = declaration("w", Initializer::zeros(), {3});
  received.where = {};
  store.declare(received);
  store.declare(declaration("w", Initializer::normal(0, 1), {3}));
  CHECK(store.declaration("w").initializer == Initializer::normal(0, 1));
  store.declare(received);  // when the job goes back to that state
  store.declare(declaration("w", Initializer::normal(0, 1), {3}));
  CHECK_THROWS_WITH(store.declare(declaration("w", Initializer::zeros(), {3})), Catch::Contains("but it was declared as normal with mean 0"));
  received.type.shape = {4};
  CHECK_THROWS_WITH(store.declare(received), Catch::Contains("give the two different names or the same type"));
}

TEST_CASE("declaring again finds the variable with its value, another type or kind is refused") {
  VariableStore store{7, 1, 2};
  store.declare(declaration("w", Initializer::zeros(), {3}));
  AnyArray gone = Array<float>{{3}}.any();
  const AnyArray kept = std::move(gone);
  CHECK_THROWS_WITH(store.set("w", gone), Catch::StartsWith("the value given for \"w\": the array has no memory"));
  store.set("w", Array<float>{{3}, {1, 2, 3}}.any());
  store.declare(declaration("w", Initializer::zeros(), {3}));
  CHECK(floats(store.value("w", 0)) == std::vector<float>{1, 2, 3});
  CHECK_THROWS_WITH(store.declare(declaration("w", Initializer::zeros(), {4})),
                    "the variable \"w\" was asked for as mirrored float32[4] at train.cpp:12, but it was declared as mirrored float32[3] at "
                    "train.cpp:12: give the two different names or the same type");
  CHECK_THROWS_WITH(store.declare(declaration("w", Initializer::zeros(), {3}, VariableKind::replica_local)),
                    Catch::Contains("was asked for as replica_local float32[3] at train.cpp:12, but it was declared as mirrored float32[3]"));
  CHECK_THROWS_WITH(store.declare(declaration("w", Initializer::ones(), {3})),
                    "the variable \"w\" was asked for as constant 1 at train.cpp:12, but it was declared as constant 0 at train.cpp:12: give the two "
                    "different names or the same initialiser");
}

TEST_CASE("setting gives every copy the value and leaves it where it is") {
  VariableStore store{7, 2, 3};
  store.declare(declaration("s", Initializer::zeros(), {2}, VariableKind::replica_local));
  const auto* before = store.data("s", 2);
  store.set("s", Array<float>{{2}, {4, 5}}.any());
  CHECK(store.data("s", 2) == before);
  for (const int copy : {0, 1, 2}) CHECK(floats(store.value("s", copy)) == std::vector<float>{4, 5});
}

TEST_CASE("names are in order") {
  VariableStore store{7, 1, 1};
  for (const char* name : {"b", "a.b", "a"}) store.declare(declaration(name, Initializer::zeros()));
  CHECK(store.names() == std::vector<std::string>{"a", "a.b", "b"});
  CHECK(store.contains("a"));
  CHECK_FALSE(store.contains("c"));
  CHECK_THROWS_WITH(store.declaration("c"), "there is no variable \"c\": there are \"a\", \"a.b\", \"b\"");
  VariableStore one{7, 1, 1}, many{7, 1, 1};
  one.declare(declaration("weight", Initializer::zeros()));
  CHECK_THROWS_WITH(one.declaration("c"), "there is no variable \"c\": there is \"weight\"");
  for (int i = 0; i < 10; ++i) many.declare(declaration("layer" + std::to_string(i), Initializer::zeros()));
  CHECK_THROWS_WITH(many.declaration("c"), Catch::EndsWith("\"layer6\", \"layer7\" and 2 others"));
}

TEST_CASE("one copy of a replica-local variable can be set, and none of a mirrored one") {
  VariableStore store{7, 1, 2};
  store.declare(declaration("s", Initializer::zeros(), {2}, VariableKind::replica_local));
  store.declare(declaration("w", Initializer::zeros(), {2}));
  const auto array = Array<float>{{2}, {4, 5}}.any();
  store.set("s", array, 1);
  CHECK(floats(store.value("s", 0)) == std::vector<float>{0, 0});
  CHECK(floats(store.value("s", 1)) == std::vector<float>{4, 5});
  CHECK_THROWS_WITH(store.set("s", array, 2), Catch::Contains("asked for copy 2, but this process holds 2"));
  CHECK_THROWS_WITH(store.set("w", array, 0), Catch::StartsWith("\"w\" is mirrored (declared at ") && Catch::EndsWith("set it without a replica, or declare it replica_local"));
}

TEST_CASE("a copy that this process does not hold is refused") {
  VariableStore store{7, 1, 2};
  store.declare(declaration("s", Initializer::zeros(), {2}, VariableKind::replica_local));
  for (const int copy : {-1, 2})
    CHECK_THROWS_WITH(store.value("s", copy), "the variable \"s\" was asked for copy " + std::to_string(copy) +
                                                  ", but this process holds 2: count them from 0");
}

}  // namespace test_variable_store
