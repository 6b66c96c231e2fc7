// Splits any bytes into any pieces: the events do not depend on the cuts, and each is parsed or
// refused with a message.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "loadgen/event_stream.h"

namespace {

using tokamak::Status;
using tokamak::loadgen::EventStream;

std::vector<std::string> Events(std::string_view bytes, size_t piece) {
  std::vector<std::string> events;
  EventStream stream;
  while (!bytes.empty()) {
    const Status status = stream.Feed(bytes.substr(0, piece), [&](std::string_view data) {
      events.emplace_back(data);
      return Status();
    });
    if (!status.ok()) break;
    bytes.remove_prefix(std::min(piece, bytes.size()));
  }
  return events;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::vector<std::string> events = Events(bytes, std::max<size_t>(size, 1));
  if (Events(bytes, 1) != events || Events(bytes, 7) != events) std::abort();
  for (const std::string& event : events) {
    const auto chunk = tokamak::loadgen::ParseStreamedChunk(event);
    if (!chunk.ok() && chunk.status().message().empty()) std::abort();
    if (chunk.ok() && chunk->usage && chunk->usage->completion_tokens < 0) std::abort();
  }
  (void)tokamak::loadgen::ErrorMessage(bytes);
  return 0;
}
