// Reads the wire format of Protocol Buffers field by field, without a schema.
// https://protobuf.dev/programming-guides/encoding
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tokamak {

// Reads one message without copying. For a nested message, make another reader from `bytes`.
class ProtoReader {
 public:
  enum class WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
  struct Field {
    uint32_t number = 0;
    WireType type = WireType::kVarint;
    uint64_t value = 0;      // kVarint, kFixed64, kFixed32
    std::string_view bytes;  // kBytes: a view into the message

    float AsFloat() const { return std::bit_cast<float>(static_cast<uint32_t>(value)); }
  };

  explicit ProtoReader(std::string_view message) : message_(message) {}

  // Reads the next field. Returns false at the end of the message or on malformed input.
  bool Next(Field& field);
  // Describes what is malformed; null if nothing is.
  const char* error() const { return error_; }
  // Bytes read so far.
  size_t offset() const { return offset_; }

 private:
  bool Varint(uint64_t& value);
  bool Fixed(size_t size, uint64_t& value);
  bool Fail(const char* what);

  std::string_view message_;
  size_t offset_ = 0;
  const char* error_ = nullptr;
};

}  // namespace tokamak
