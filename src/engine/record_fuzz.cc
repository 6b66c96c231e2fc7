// Fuzzes the record parser on arbitrary bytes, and on bytes put into well-formed frames, which
// reach the fields behind the checksums. What parses must encode to the same bytes and replay
// without an executor.
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "engine/record_codec.h"
#include "engine/replay.h"

namespace tokamak {
namespace {

std::string EncodeEvent(RecordEvent event) {
  std::string payload;
  codec::Encoder encoder(&payload);
  encoder.Unsigned(event.index());
  std::visit([&](auto& fields) { codec::Field(encoder, fields); }, event);
  return payload;
}

void AppendFrame(std::string_view payload, std::string* out) {
  codec::Encoder frame(out);
  frame.Unsigned(payload.size());
  *out += payload;
  const uint64_t checksum = Hash64(payload.data(), payload.size());
  frame.Bytes(&checksum, 4);
}

// A small machine, for quick replays.
std::string MakeStart() {
  RecordHeader header;
  header.limits.cache.groups = {{CacheGroupKind::kFull, 2, 0}};
  header.limits.cache.num_device_blocks = 16;
  header.limits.max_seqs = header.options.max_seqs = 4;
  header.limits.max_step_tokens = header.options.max_step_tokens = 16;
  header.limits.max_context = 32;
  header.limits.vocab_size = 100;
  header.limits.depth = 2;
  std::string out = "tokamakR";
  AppendFrame(EncodeEvent(header), &out);
  return out;
}

void Read(std::string_view bytes) {
  auto reader = RecordReader::Open("fuzz", bytes);
  if (!reader.ok()) return;
  for (;;) {
    auto event = reader->Next();
    if (!event.ok() || !*event) break;
  }
  auto again = RecordReader::Open("fuzz", bytes);
  // Larger machines would only cost time.
  const ExecutorLimits& limits = again->header().limits;
  if (limits.cache.num_device_blocks > 1000 || limits.max_seqs > 100) return;
  (void)Replay(*std::move(again), {});
}

}  // namespace
}  // namespace tokamak

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tokamak::SetLogLevel(tokamak::LogLevel::kOff);
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  tokamak::Read(bytes);
  // Splits the input into payloads of up to 255 bytes, each preceded by its length.
  static const std::string start = tokamak::MakeStart();
  std::string framed = start;
  for (size_t at = 0; at < size;) {
    const std::string_view payload = bytes.substr(at + 1, data[at]);
    at += 1 + payload.size();
    const size_t before = framed.size();
    tokamak::AppendFrame(payload, &framed);
    std::string alone = start + framed.substr(before);
    auto reader = tokamak::RecordReader::Open("fuzz", alone);
    CHECK(reader.ok());
    auto event = reader->Next();
    if (!event.ok()) {
      framed.resize(before);
    } else {
      CHECK(tokamak::EncodeEvent(std::move(**event)) == payload);
    }
  }
  tokamak::Read(framed);
  return 0;
}
