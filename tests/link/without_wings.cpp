// SPDX-License-Identifier: Apache-2.0
// Built without the folders async/, elastic/ and job/elastic/. The synchronous regime works. Requests for the others
// are refused with a message that names the missing part.
#include <cstdio>
#include <string>
#include <tuple>

#include <replicator/replicator.hpp>

namespace rp = replicator;

#if __has_include(<replicator/async/async_engine.hpp>) || __has_include(<replicator/elastic/elastic_engine.hpp>)
#error "this test is to be compiled without async/ and elastic/"
#endif

namespace {

float trained(rp::Deployment deployment) {
  rp::Replicator repl{std::move(deployment)};
  auto input_fn = [](const rp::InputContext& ctx) {
    return rp::data::from_generator([replica = ctx.replica()](std::int64_t) {
      rp::Array<float> x{{1}};
      x[0] = static_cast<float>(replica + 1);
      return x;
    });
  };
  auto step_fn = [](rp::ReplicaContext& replica, rp::Tensor<float> x) {
    auto w = replica.variable<float>("w", {1}, rp::Initializer::zeros());
    w.assign(w.read() + rp::all_reduce(x, rp::Reduction::sum));
    return rp::mean(x);
  };
  auto train = repl.replicate(input_fn, step_fn);
  for (auto loss : train.steps(3)) static_cast<void>(loss);
  return repl.value("w").as<float>()[0];
}

std::string refused(const rp::Deployment& deployment) {
  try {
    trained(deployment);
  } catch (const rp::BuildError& error) {
    return error.what();
  }
  return {};
}

}  // namespace

int main() {
  rp::Deployment four;
  four.replicas = 4;
  const float w = trained(four);
  std::printf("w is %g after three steps of four replicas\n", w);
  auto async = four, elastic = four;
  async.regime = rp::Regime::asynchronous;
  elastic.elastic = true;
  const auto no_async = refused(async), no_elastic = refused(elastic);
  std::printf("%s\n%s\n", no_async.c_str(), no_elastic.c_str());
  return w == 30 && no_async.find("--regime async was given, but this program was built without it") == 0 &&
                 no_elastic.find("--elastic was given, but this program was built without it") == 0
             ? 0
             : 1;
}
