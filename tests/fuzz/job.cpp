// SPDX-License-Identifier: Apache-2.0
// Fuzzes a running job with a misbehaving process. First byte: whether that is process 0.
// covers: job/job_thread.hpp job/job_inline.hpp job/wire/link.hpp job/wire/frame.hpp
#include <replicator/job/job_inline.hpp>

#include "strangers.hpp"

namespace replicator::fuzz {

using namespace replicator::detail;
using namespace transport::detail;

namespace {

void take_part(const transport::ProcessEnvironment& environment) {
  documented<CommunicationError, BuildError>("", [&] {
    auto options = hasty_options();
    options.connect_deadline = std::chrono::milliseconds{50};
    transport::Job job{environment, options};
    for (int n = 0; n < 2; ++n) require(job.exchange({}, "what").size() == 2, "an exchange of another number of processes");
    job.leave();
  });
}

}  // namespace

void one(Bytes input) {
  Input in{input};
  if (in.number<std::uint8_t>() & 1) {
    answerer().answer(welcome() + std::string{text_of(in.rest())});
    return take_part(environment_of_newcomer(false));
  }
  const auto environment = environment_of_first(false);
  const auto other = stranger(*environment.listener, hello(false) + std::string{text_of(in.rest())});
  take_part(environment);
}

std::vector<std::string> seeds() {
  const auto frame = [](FrameWriter writer) { return std::string{text_of(writer.finish())}; };
  const auto gather = frame(FrameWriter{FrameKind::gather}.number(0).text("").text("").text("what").blob({}));
  const auto gathered = [&](std::uint64_t number) { return frame(FrameWriter{FrameKind::gathered}.number(number).blob({}).blob({})); };
  const std::string hub(1, '\0');
  return {hub + frame(FrameWriter{FrameKind::heartbeat}.number(1).text("step 0").text("train.cpp:40")) + gather + gather + frame(FrameWriter{FrameKind::bye}.number(0).text("").text("")),
          hub + frame(FrameWriter{FrameKind::suspect}.number(0).text("why")),
          hub + frame(FrameWriter{FrameKind::abort}.number(1).text("a sentence")),
          "\1" + gathered(0) + gathered(1) + frame(FrameWriter{FrameKind::farewell}),
          "\1" + frame(FrameWriter{FrameKind::outside}.number(0).text("").text("").number(7).text("")),
          "\1" + frame(FrameWriter{FrameKind::abort}.number(0).text("a sentence"))};
}

}  // namespace replicator::fuzz
