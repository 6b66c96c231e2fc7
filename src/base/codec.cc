#include "base/codec.h"

#include <cstring>

#include "base/error.h"

namespace tokamak::codec {

uint64_t Decoder::Unsigned() {
  start_ = offset_;
  if (!ok()) return 0;
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    if (offset_ == bytes_.size()) return Fail("is cut off"), 0;
    const auto byte = static_cast<uint8_t>(bytes_[offset_++]);
    if (shift == 63 && byte > 1) return Fail("is longer than 64 bits"), 0;
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte >= 0x80) continue;
    if (byte == 0 && shift > 0) return Fail("is not in its shortest form"), 0;
    return value;
  }
}

std::string_view Decoder::Text(size_t size) {
  start_ = offset_;
  if (ok() && size > Rest().size()) Fail("is cut off");
  if (!ok()) return {};
  offset_ += size;
  return bytes_.substr(start_, size);
}

void Decoder::Bytes(void* data, size_t size) {
  if (size == 0) return;
  if (const std::string_view from = Text(size); !from.empty()) {
    std::memcpy(data, from.data(), size);
  } else {
    std::memset(data, 0, size);
  }
}

size_t Decoder::Count(uint64_t most, size_t element_bytes) {
  const uint64_t count = Unsigned();
  if (count > most) {
    Fail(fmt::format("has {} elements, but at most {} are allowed", count, most));
  } else if (count > Rest().size() / element_bytes) {
    Fail(fmt::format("has {} elements, but only {} bytes follow", count, Rest().size()));
  }
  return ok() ? count : 0;
}

void Decoder::Fail(std::string what) {
  if (ok()) error_ = fmt::format("byte {}: {}", start_, what);
}

void Decoder::Within(std::string_view part) {
  const bool separate = !path_.empty() && path_.front() != '[';
  path_ = fmt::format("{}{}{}", part, separate ? "." : "", path_);
}

Status Decoder::Finish() {
  if (ok() && !Rest().empty()) {
    start_ = offset_;
    Fail(fmt::format("{} bytes follow the last field", Rest().size()));
  }
  if (ok()) return Status();
  return DataLoss("{}{}{}", path_, path_.empty() ? "" : ": ", error_);
}

}  // namespace tokamak::codec
