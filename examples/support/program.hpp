// SPDX-License-Identifier: Apache-2.0
// What the larger examples have in common: their main, and where their pictures are.
#pragma once

#include <cstdint>
#include <filesystem>
#include <exception>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include <replicator/replicator.hpp>

namespace example {

// Reads the flags of the app and of the deployment, and runs train(deployment). Exit codes: train's own (0 done; 130, 143 stopped by
// Ctrl-C, SIGTERM); 1 failed, with a sentence on stderr; 2 the command line cannot be understood.
template <class Train>
int run(CLI::App& app, int argc, char** argv, Train train) {
  app.footer(replicator::Deployment::help());
  replicator::Deployment deployment;
  try {
    deployment = replicator::Deployment::from(argc, argv);
    app.parse(std::vector<std::string>(deployment.remaining.rbegin(), deployment.remaining.rend()));
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const replicator::BuildError& error) {
    std::cerr << app.get_name() << ": " << error.what() << '\n';
    return 2;
  }
  try {
    return train(std::move(deployment));
  } catch (const std::exception& error) {
    std::cerr << app.get_name() << ": " << error.what() << '\n';
    return 1;
  }
}

struct Folders {
  std::string train;
  std::string val;  // empty: there are no held-out pictures
};

// Those of `data`: train/<class> and val/<class>, or <class> alone. Without `data` a synthetic set of this size in pixels is written
// into `synthetic_dir` and used; who `speaks` says so.
inline Folders find_folders(const std::string& data, const std::string& synthetic_dir, std::int64_t size, bool speaks) {
  if (!data.empty()) {
    const auto train = data + "/train", val = data + "/val";
    if (!std::filesystem::is_directory(train)) return {data, ""};
    return {train, std::filesystem::is_directory(val) ? val : ""};
  }
  const std::string folder = synthetic_dir + "/synthetic-" + std::to_string(size);
  if (speaks) std::cout << "no --data: training on synthetic pictures in " << folder << std::endl;
  replicator::data::write_synthetic(folder, {.size = size});
  return {folder + "/train", folder + "/val"};
}

}  // namespace example
