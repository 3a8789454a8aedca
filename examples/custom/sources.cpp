// SPDX-License-Identifier: Apache-2.0
// Reads tables, texts and pictures, and lets a step depend on the one before: ./sources FOLDER --replicas 2
// The folder gets small files to read.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <tuple>
#include <vector>

#include <replicator/replicator.hpp>

namespace rp = replicator;

namespace {

void write_files(const std::filesystem::path& folder) {
  for (const auto* name : {"books", "photos/train/few", "photos/train/many"}) std::filesystem::create_directories(folder / name);
  std::filesystem::current_path(folder);
  std::ofstream{"houses.csv"} << "area,rooms,town,price\n81.5,3,\"Ulm, or nearby\",250000\n120,4,Bern,910000\n";
  std::ofstream{"iris.csv"} << "length,width,petal,sepal,species\n5.1,3.5,1.4,0.2,setosa\n6.3,3.3,6,2.5,virginica\n";
  std::ofstream{"books/a.txt"} << std::string(300, 'a') + std::string(300, 'b');
  for (const auto* name : {"few/1.png", "many/1.png", "many/2.png", "many/3.png"}) std::ofstream{std::filesystem::path{"photos/train"} / name} << "not read here";
}

void read_tables() {
  // area,rooms,town,price
  // 81.5,3,"Ulm, or nearby",250000
  const auto houses = rp::data::zip(rp::data::csv<float>("houses.csv", {"area", "rooms"}),                                 // float32 [2]
                                    rp::data::csv_column<float>("houses.csv", "price"));                                   // float32 []
  const auto flowers = rp::data::zip(rp::data::csv<float>("iris.csv", {0, 1, 2, 3}),                                       // float32 [4]
                                     rp::data::csv_labels("iris.csv", "species", {"setosa", "versicolor", "virginica"}));  // int32 []
  const auto [house, price] = houses(0);
  const auto [flower, species] = flowers(1);
  std::cout << "a house of " << house[0] << " with " << house[1] << " rooms costs " << price.item() << "; flower " << flower[0] << " is of species " << species.item() << '\n';
}

void read_texts(rp::Replicator& repl) {
  const auto books = rp::data::text_windows("books", rp::data::byte_tokens, {.length = 128});  // a file, or all *.txt of a folder
  auto input_fn = [&](const rp::InputContext& ctx) { return books | rp::data::shuffle() | rp::data::shard(ctx) | rp::data::batch(ctx.replica_batch(64)); };
  auto step_fn = [](rp::ReplicaContext&, rp::Tensor<std::int32_t> tokens, rp::Tensor<std::int32_t> targets) {  // [n, 128] both
    return rp::sum(rp::cast<float>(targets != tokens));
  };
  auto count = repl.replicate(input_fn, step_fn);
  const auto [changes] = count.step();
  std::cout << "places of the first 64 windows where the letter changes: " << rp::sum(changes) << '\n';
}

void probe(rp::Replicator& repl) {
  auto probes = [&](const rp::InputContext& ctx) {
    ctx.same_on_all_replicas();
    return rp::data::csv<float>("houses.csv", {"area", "rooms"}) | rp::data::batch(2);  // the same two rows for each replica
  };
  auto look = repl.replicate(probes, [](rp::ReplicaContext&, rp::Tensor<float> x) { return rp::sum(x); });
  const auto [sums] = look.step();
  std::cout << "the replicas see " << sums << '\n';
}

void draw_by_weight() {
  const auto pictures = rp::data::image_folder("photos/train");
  std::vector<double> count(pictures.classes().size()), weights;
  for (std::int64_t i = 0; i < pictures.images(); ++i) ++count[pictures(i).label];
  for (std::int64_t i = 0; i < pictures.images(); ++i) weights.push_back(1 / count[pictures(i).label]);
  const auto balanced = pictures | rp::data::sample(weights);  // then balanced | rp::data::shard(ctx) | ...
  std::cout << pictures.images() << " pictures of " << count.size() << " classes, drawn in equal parts from each\n";
}

void depend_on_results(rp::Replicator& repl) {
  auto step_fn = [](rp::ReplicaContext& replica) {
    auto level = replica.variable<float>("level", {}, rp::Initializer::constant(1));
    return level.read() * 2.0f;
  };
  auto play = repl.replicate(step_fn);
  float level = 1;
  for (int turn = 0; turn < 4; ++turn) {
    repl.set("level", level);   // a variable that the step reads; every process sets the same
    auto [next] = play.step();  // a step without input
    level = next[0].item();
  }
  std::cout << "level " << level << '\n';
}

}  // namespace

int main(int argc, char** argv) try {
  const auto deployment = rp::Deployment::from(argc, argv);
  if (deployment.remaining.size() != 1) return std::cerr << "usage: sources FOLDER\n"
                                                         << rp::Deployment::help(),
                                               2;
  write_files(deployment.remaining[0]);
  rp::Replicator repl{deployment};
  read_tables();
  read_texts(repl);
  probe(repl);
  draw_by_weight();
  depend_on_results(repl);
  return std::cout.flush() ? 0 : 1;
} catch (const rp::Error& error) { return std::cerr << error.what() << '\n', 1; }
