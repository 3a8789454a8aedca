// SPDX-License-Identifier: Apache-2.0
// The generative adversarial network on tiny pictures: one sha256 of all weights on any placement of its replicas.
#include <catch2/catch.hpp>

#include <filesystem>
#include <string>

#include <replicator/data/pictures/jpeg_decoder.hpp>
#include <replicator/data/worker_threads.hpp>
#include <replicator/io/safetensors_file.hpp>

#include "../../examples/support/synthetic.hpp"
#include "../input/temporary_folder.hpp"
#include "examples.hpp"
#include "png_extents.hpp"

namespace test_sngan {

using namespace replicator;

namespace {

struct Pictures {
  const TemporaryFolder temporary;
  const std::filesystem::path folder = temporary.path() + "/pictures";
  Pictures() { example::write_synthetic(folder.string(), {.classes = 2, .train = 16, .val = 16, .size = 16, .seed = 1}); }
};

std::string command(const Pictures& pictures, const std::string& flags) {
  return test::example("sngan") + " --replicas 4 --global-batch 8 --image-size 16 --latent 8 --generator-channels 8 " +
         "--discriminator-channels 8 --n-dis 2 --sample-columns 3 --seed 7 --data " + pictures.folder.string() + " --samples " +
         (pictures.folder / "samples").string() + " " + flags;
}

std::string weights(const Pictures& pictures, const std::string& flags) { return test::digits_of(command(pictures, flags)); }

}  // namespace

TEST_CASE("sngan prints one sha256 for one device and two, with and without a gradient penalty, draws a grid and saves the generator") {
  const Pictures pictures;
  const auto saved = (pictures.folder / "generator.safetensors").string();
  const auto serial = weights(pictures, "--steps 2 --serial --save " + saved);
  CHECK(io::read_safetensors(saved).tensors.contains("block1.norm1.gain.weight"));
  CHECK(weights(pictures, "--steps 2 --devices cpu:0-1") == serial);
  const auto grid = pictures.folder / "samples" / "step-00000002.png";
  CHECK(test::png_extents(grid.string()) == Shape{2 * 18 + 2, 3 * 18 + 2});
  const auto penalised = weights(pictures, "--steps 2 --penalty 1 --serial");
  CHECK(weights(pictures, "--steps 2 --penalty 1 --devices cpu:0-1") == penalised);
  CHECK(penalised != serial);
}

TEST_CASE("sngan that is resumed prints the sha256 of the run that was never stopped") {
  const Pictures pictures;
  const auto kept = "--checkpoint " + (pictures.folder / "kept").string() + " ";
  const auto whole = weights(pictures, "--serial --steps 3");
  weights(pictures, "--serial --steps 1 " + kept);
  CHECK(weights(pictures, "--devices cpu:0-1 --resume --steps 3 " + kept) == whole);
}

TEST_CASE("the process that takes the place of sngan's first one goes on printing, draws the grid, saves, and prints the same sha256") {
  const Pictures pictures;
  const auto serial = weights(pictures, "--steps 4 --serial");
  const auto saved = (pictures.folder / "taken_over.safetensors").string();
  std::filesystem::remove_all(pictures.folder / "samples");
  // Process 0 dies when it prints and nobody reads any more: at its second step or later.
  const auto results = test::run_as_job(2, [&](int rank) {
    return test::run_program(command(pictures, "--steps 4 --elastic --save " + saved + (rank == 0 ? " | grep -m 1 \"^step 1/\"" : ""))).text;
  });
  INFO(test::describe(results));
  const auto& text = results[1].text;
  CHECK(test::line_of(text, "weights sha256: ") == serial);
  CHECK(text.find("step 4/4 ") != std::string::npos);
  CHECK(std::filesystem::exists(pictures.folder / "samples" / "step-00000004.png"));
  CHECK(std::filesystem::exists(saved));
}

TEST_CASE("sngan judges samples by a classifier that resnet50 has saved, beside held-out pictures and noise") {
  const Pictures pictures;
  const auto file = (pictures.folder / "classifier.safetensors").string();
  const auto trained = test::run_program(test::example("resnet50") + " --depth 18 --image-size 16 --replicas 2 --global-batch 8 --steps 1 --serial --data " +
                                         pictures.folder.string() + " --save " + file);
  INFO(trained.text);
  REQUIRE(trained.exit_code == 0);
  const auto result = test::run_program(command(pictures, "--serial --steps 1 --score-pictures 16 --classifier " + file));
  INFO(result.text);
  CHECK(result.exit_code == 0);
  CHECK_THAT(result.text, Catch::Contains("Frechet distance on our own classifier's features, 16 pictures each: samples ") &&
                              Catch::Contains("held-out real pictures ") && Catch::Contains("noise "));
}

}  // namespace test_sngan
