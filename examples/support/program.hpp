// SPDX-License-Identifier: Apache-2.0
// What the larger examples have in common: their main.
#pragma once

#include <exception>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include <replicator/replicator.hpp>

#include "help.hpp"

namespace example {

// Reads the flags of the app and of the deployment, and runs train(deployment). Exit codes: train's own (0 done; 130, 143 stopped by
// Ctrl-C, SIGTERM); 1 failed, with a sentence on stderr; 2 the command line cannot be understood.
template <class Train>
int run(CLI::App& app, int argc, char** argv, Train train) {
  app.formatter(std::make_shared<Help>());
  app.get_help_ptr()->description("prints this text and ends");
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

}  // namespace example
