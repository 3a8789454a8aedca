// SPDX-License-Identifier: Apache-2.0
// Fuzzes the bytes of a connection: frames, in pieces, and the fields of the first frames of a job.
// covers: job/wire/link.hpp job/wire/frame.hpp job/join_request.hpp job/membership.hpp
#include <fcntl.h>
#include <sys/socket.h>

#include <replicator/job/membership.hpp>

#include "target.hpp"

namespace replicator::fuzz {

using namespace replicator::detail;
using namespace transport::detail;

namespace {

void understand(FrameKind kind, const transport::detail::Bytes& fields) {
  documented<CommunicationError>("cut short", [&] {
    FrameReader reader{fields};
    if (kind == FrameKind::hello) {
      const auto who = JoinRequest::read(reader);
      require(who.info.host.size() <= 255, "a name that is not cut");
      FrameWriter again{FrameKind::hello};
      who.write(again);
#ifdef REPLICATOR_FUZZ_PLANT
      // The planted bug: the rank of a stranger as an index.
      const std::vector<int> here(3);
      if (who.nonce.size() == 32 && who.world_size == 3) require(here.data()[who.rank] == 0, "planted");
#endif
    }
    if (kind == FrameKind::refuse) printable(read_refusal(reader).sentence);
    if (kind == FrameKind::welcome) {
      reader.number();
      for (int r = 0; r < 3; ++r) reader.number(), printable(reader.text());
      reader.blob();
    }
    if (kind == FrameKind::gather) reader.number(), reader.text(), reader.text(), reader.blob();
  });
}

}  // namespace

// First byte: bytes per write (0: all at once).
void one(Bytes input) {
  int ends[2];
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0, "no sockets");
  const transport::FileDescriptor writer{ends[0]};
  Link link{transport::FileDescriptor{ends[1]}, 65536};
  Input rest{input};
  const std::size_t piece = rest.number<std::uint8_t>();
  std::size_t taken = 0;
  const std::size_t all = rest.rest().size();
  while (!rest.empty()) {
    const auto part = rest.take(piece == 0 || all > 4096 ? 16384 : piece);
    require(::send(writer.get(), part.data(), part.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(part.size()), "not sent");
    const bool good = link.pump_in();
    FrameKind kind{};
    transport::detail::Bytes fields;
    while (link.next(kind, fields)) {
      taken += sizeof(FrameHeader) + fields.size();
      require(taken <= all, "more frames than bytes");
      understand(kind, fields);
    }
    if (!good) return;
  }
}

std::vector<std::string> seeds() {
  const auto text = [](const transport::detail::Bytes& frame) { return std::string{text_of(frame)}; };
  const transport::detail::Bytes nonce(32, std::byte{7});
  FrameWriter hello{FrameKind::hello};
  JoinRequest{"job", 3, 1, {4711, "host"}, nonce}.write(hello);
  const auto welcome = FrameWriter{FrameKind::welcome}.number(5).number(1).text("a").number(2).text("b").number(3).text("c").blob({}).finish();
  return {"\7" + text(hello.finish()) + text(FrameWriter{FrameKind::heartbeat}.finish()), std::string(1, '\0') + text(welcome),
          "\1" + text(refusal(Refusal::failure, 1, "a sentence")) + text(FrameWriter{FrameKind::gather}.number(3).text("step 2").text("train.cpp:40").text("what").blob(nonce).finish())};
}

}  // namespace replicator::fuzz
