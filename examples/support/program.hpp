// SPDX-License-Identifier: Apache-2.0
// What the larger examples have in common: their main.
#pragma once

#include <cstdio>
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

// The exit code of a program that has printed all that it had to say.
inline int require_written(const std::string& program, int exit_code) {
  if (exit_code != 0 || (std::cout.flush() && std::fflush(stdout) == 0 && std::ferror(stdout) == 0)) return exit_code;
  std::cerr << program << ": the standard output could not be written completely: is the disk full?\n";
  return 1;
}

// Reads the flags of the app and of the deployment, and runs train(deployment). Exit codes: train's own (0 done; 130, 143 stopped by
// Ctrl-C, SIGTERM); 1 failed or could not write its output, with a sentence on stderr; 2 the command line cannot be understood.
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
    return require_written(app.get_name(), app.exit(error) == 0 ? 0 : 2);
  } catch (const replicator::BuildError& error) {
    std::cerr << app.get_name() << ": " << error.what() << '\n';
    return 2;
  }
  try {
    return require_written(app.get_name(), train(std::move(deployment)));
  } catch (const std::exception& error) {
    std::cerr << app.get_name() << ": " << error.what() << '\n';
    return 1;
  }
}

}  // namespace example
