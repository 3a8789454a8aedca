// SPDX-License-Identifier: Apache-2.0
// The hand-over to a process that rejoins its job: the bytes of a checkpoint, complete or refused.
#include <catch2/catch.hpp>

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <replicator/engine/state/snapshot.hpp>

namespace test_handover {

using namespace replicator;
using namespace replicator::detail;

namespace {

constexpr int replicas = 3;
constexpr auto name = "what process 0 handed over";

AnyArray counted(const TensorType& type) {
  AnyArray array{type};
  for (std::size_t i = 0; i < array.size_bytes(); ++i) array.data()[i] = static_cast<std::byte>(type.dtype == DType::boolean ? i % 2 : i);
  return array;
}
void declare(Snapshot& snapshot, const std::string& variable, VariableKind kind, const TensorType& type) {
  VariableDeclaration declaration;
  declaration.name = variable;
  declaration.type = type;
  declaration.kind = kind;
  snapshot.checkpoints.state.variables[variable] = {kind, {0, 2}};
  snapshot.variables.emplace(variable, Snapshot::Variable{declaration, counted(checkpointed_type(type, kind, replicas))});
}
// Of a program with three steps, of which the second is gone, that was resumed.
Snapshot snapshot() {
  Snapshot result;
  result.call = 17;
  declare(result, "fc/weight", VariableKind::mirrored, {DType::float32, {2, 5}});
  declare(result, "number", VariableKind::mirrored, {DType::int64, {}});
  declare(result, "norm mean", VariableKind::replica_local, {DType::bfloat16, {4}});
  declare(result, "one each", VariableKind::replica_local, {DType::boolean, {}});
  declare(result, "nothing", VariableKind::replica_local, {DType::float64, {0, 2}});
  declare(result, "deep", VariableKind::replica_local, {DType::uint8, {2, 1, 1, 2, 1, 1, 1, 2}});
  auto& memory = result.checkpoints;
  memory.path = "runs/a b/step-0000000012.safetensors";
  memory.read = {0, 1};
  memory.declared = {0, 1, 2};
  memory.due = {2};
  for (const int ordinal : {0, 1, 2}) memory.lives[ordinal];
  memory.state.experiment = {{"replicas", "3"}, {"seed", "7"}};
  memory.state.next_ordinal = 3;
  memory.state.steps = {{0, {12, false, 4}}, {1, {5, true, 1}}, {2, {6, false, 2}}};
  memory.state.variables["later"] = {VariableKind::mirrored, {1}};
  memory.state.values.emplace("later", counted({DType::float32, {2}}));
  return result;
}
const std::map<int, Resumption> steps{{0, {12, false, {}, {}}}, {2, {6, false, {}, {}}}, {3, {9, true, {}, {}}}};

std::string refusal(std::span<const std::byte> bytes, int of = replicas) {
  try {
    unpack_handover(name, bytes, of);
    return "";
  } catch (const DataError& error) {
    return error.what();
  }
}
// The same with another content, and the checksum of that.
std::vector<std::byte> rewritten(const std::function<void(Checkpoint&)>& change) {
  auto checkpoint = read_checkpoint(name, pack_handover(snapshot(), steps));
  change(checkpoint);
  std::vector<io::NamedTensor> tensors;
  for (const auto& [tensor, value] : checkpoint.values) tensors.push_back({tensor, value.type(), value.data()});
  return checkpoint_bytes(checkpoint, tensors);
}

}  // namespace

TEST_CASE("a snapshot that is handed over is the same there, bit for bit") {
  const auto before = snapshot();
  const auto [after, their_steps] = unpack_handover(name, pack_handover(before, steps), replicas);
  CHECK(after.call == before.call);
  REQUIRE(after.variables.size() == before.variables.size());
  for (const auto& [variable, one] : before.variables) {
    INFO(variable);
    const auto& other = after.variables.at(variable);
    CHECK(other.declaration.name == variable);
    CHECK(other.declaration.kind == one.declaration.kind);
    CHECK(other.declaration.type == one.declaration.type);
    REQUIRE(other.value.type() == one.value.type());
    CHECK(std::equal(one.value.bytes().begin(), one.value.bytes().end(), other.value.bytes().begin()));
  }
  const auto &mine = before.checkpoints, &theirs = after.checkpoints;
  CHECK(theirs.path == mine.path);
  CHECK(theirs.read == mine.read);
  CHECK(theirs.declared == mine.declared);
  CHECK(theirs.due == mine.due);
  CHECK(theirs.lives.size() == 3);
  CHECK(theirs.state.experiment == mine.state.experiment);
  CHECK(theirs.state.next_ordinal == 3);
  for (const auto& [ordinal, step] : mine.state.steps) {
    const auto& other = theirs.state.steps.at(ordinal);
    CHECK((other.done == step.done && other.finished == step.finished && other.collectives == step.collectives));
  }
  CHECK(theirs.state.variables.at("later").steps == std::set<int>{1});
  CHECK(theirs.state.values.size() == 1);
  CHECK(theirs.state.values.at("later").as<float>()[1] == mine.state.values.at("later").as<float>()[1]);
  REQUIRE(their_steps.size() == 3);
  for (const auto& [ordinal, step] : steps) CHECK((their_steps.at(ordinal).done == step.done && their_steps.at(ordinal).finished == step.finished));
}

TEST_CASE("what is handed over is equal for equal snapshots, and a checkpoint to every reader of such") {
  const auto bytes = pack_handover(snapshot(), steps);
  CHECK(bytes == pack_handover(snapshot(), steps));
  const auto read = read_checkpoint(name, bytes);
  CHECK(read.total() == 23);
  CHECK(read.values.size() == 7);
}

TEST_CASE("a handover that is cut short anywhere, or of which any byte is another, is refused by name") {
  const auto whole = pack_handover(snapshot(), steps);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto why = refusal(std::span{whole}.first(size));
    if (why.starts_with(name)) continue;
    FAIL("its first " << size << " bytes are refused by \"" << why << "\"");
  }
  for (const int bit : {1, 0x80})
    for (std::size_t at = 0; at < whole.size(); ++at) {
      auto damaged = whole;
      damaged[at] ^= static_cast<std::byte>(bit);
      const auto why = refusal(damaged);
      if (why.starts_with(name)) continue;
      FAIL("with another byte " << at << " it is refused by \"" << why << "\"");
    }
}

TEST_CASE("a handover whose checksum is right says what it lacks") {
  using Catch::Contains;
  const auto why = [](const std::function<void(Checkpoint&)>& change) { return refusal(rewritten(change)); };
  CHECK(why([](Checkpoint&) {}).empty());
  for (const std::string key : {"call", "path", "read", "declared", "due", "made"}) {
    CHECK(why([&](Checkpoint& c) { c.moment.erase(key); }) ==
          "what process 0 handed over is no state to go on from: it does not say \"" + key + "\"");
  }
  CHECK_THAT(why([](Checkpoint& c) { c.values.erase("number"); }), Contains("it does not have the variable \"number\""));
  CHECK_THAT(why([](Checkpoint& c) { c.variables.erase("number"); }), Contains("it does not have the variable \"number\""));
  for (const std::string number : {"", "x", "-1", "99999999999999999999999"}) {
    for (const std::string key : {"call", "step 0", "rank number"})
      CHECK_THAT(why([&](Checkpoint& c) { c.moment[key] = number; }), Contains("\"" + number + "\" is no number, or one that is too large"));
    CHECK_THAT(why([&](Checkpoint& c) { c.moment["step " + number] = "1"; }), Contains("\"" + number + "\" is no number"));
  }
  CHECK_THAT(why([](Checkpoint& c) { c.moment["made"] = "1 2 "; }) + why([](Checkpoint& c) { c.moment["made"] = "1  2"; }), Contains("\"\" is no number"));
}

TEST_CASE("a handover of another number of replicas, or dimensions, is refused before a value is used") {
  using Catch::Contains;
  const auto whole = pack_handover(snapshot(), steps);
  for (const int other : {1, 2, 4}) CHECK_THAT(refusal(whole, other), Contains("is not of " + std::to_string(other) + " replica(s) with "));
  for (const std::string variable : {"fc/weight", "norm mean", "one each", "deep", "nothing"})
    for (const std::string rank : {"0", "1", "2", "3", "7", "8", "9", "4000000000"}) {
      if (rank == std::to_string(snapshot().variables.at(variable).declaration.type.shape.rank())) continue;
      INFO(variable << " with " << rank);
      CHECK_THAT(refusal(rewritten([&](Checkpoint& c) { c.moment["rank " + variable] = rank; })), Contains("\"" + variable + "\"") && Contains(rank + " dimension(s)"));
    }
}

TEST_CASE("a claim of more than was handed over takes no memory") {
  const std::string header = R"({"w":{"dtype":"F64","shape":[1125899906842624],"data_offsets":[0,9007199254740992]}})";
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  file += header;
  CHECK_THAT(refusal(std::as_bytes(std::span{file})), Catch::Contains("describes 9007199254740992 bytes of tensors"));
}

TEST_CASE("who is handed a state that it cannot go on from says who sent it") {
  const transport::Job alone;
  const auto error_of = [&](const std::vector<std::byte>& state) -> std::string {
    try {
      received_handover(state, alone, {1}, replicas);
      return "";
    } catch (const CommunicationError& error) {
      return error.what();
    }
  };
  const auto sender = "what " + alone.describe(0) + " handed over to this process";
  CHECK(error_of(pack_handover(snapshot(), steps)) == sender + " does not say how far step 1 is");
  CHECK(error_of(pack_handover(snapshot(), {{1, {}}})).empty());
  CHECK(error_of({}) == sender + ": not a safetensors file: it has 0 bytes, the shortest has 10");
}

}  // namespace test_handover
