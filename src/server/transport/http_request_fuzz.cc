// Any bytes give a request, a refusal with a reason, or a wait for more. The outcome does not
// depend on how the bytes are split. The first byte is the seed of the split. What is read as a
// request is unambiguous.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "server/transport/request_reader.h"

namespace {

using tokamak::RequestReader;

struct Outcome {
  int status = 0;
  bool done = false;
  size_t taken = 0;
  std::string body, path;

  bool operator==(const Outcome& other) const {
    // How many bytes a waiting or refusing reader takes depends on how they are split.
    return status == other.status && done == other.done && body == other.body &&
           path == other.path && (!done || taken == other.taken);
  }
};

void Require(bool holds) {
  if (!holds) std::abort();
}

// Splits at pseudo-random places; seed 0: does not split.
Outcome Read(std::string_view bytes, uint32_t seed) {
  RequestReader reader(8192, 65536);
  Outcome outcome;
  size_t arrived = 0;
  while (!reader.done() && !reader.refused()) {
    const size_t taken = reader.Feed(bytes.substr(outcome.taken, arrived - outcome.taken));
    outcome.taken += taken;
    Require(outcome.taken <= arrived);
    if (taken > 0) continue;
    if (arrived == bytes.size()) break;
    seed = seed * 1664525 + 1013904223;
    const size_t step = seed == 1013904223 ? bytes.size() : 1 + (seed >> 24) % 61;
    arrived = std::min(bytes.size(), arrived + step);
  }
  outcome.status = reader.refused() ? reader.status() : 0;
  outcome.done = reader.done();
  if (reader.refused()) Require(!reader.message().empty() && reader.status() >= 400);
  if (outcome.done) {
    outcome.body = reader.request().body;
    outcome.path = reader.request().path;
  }
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Outcome whole = Read(bytes, 0);
  Require(whole == Read(bytes, data[0] + 1U));
  Require(whole.status == 0 || whole.status < 500);
  if (!whole.done) return 0;
  Require(whole.path.starts_with('/') &&
          whole.path.find_first_of("\r\n\0 ?#", 0, 6) == std::string::npos);
  Require(whole.body.size() <= 65536);
  return 0;
}
