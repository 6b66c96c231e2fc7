// Reading Protocol Buffers' wire format, which needs no schema: fields, one after another.
// https://protobuf.dev/programming-guides/encoding
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tokamak {

// One message. Nothing is copied and nothing recursed into: a nested message is a reader of its
// own, of `bytes`.
class ProtoReader {
 public:
  enum class WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
  struct Field {
    uint32_t number = 0;
    WireType type = WireType::kVarint;
    uint64_t value = 0;      // kVarint, kFixed64, kFixed32
    std::string_view bytes;  // kBytes: within the message

    float AsFloat() const { return std::bit_cast<float>(static_cast<uint32_t>(value)); }
  };

  explicit ProtoReader(std::string_view message) : message_(message) {}

  // The next field; false at the end of the message, and when what follows is malformed.
  bool Next(Field& field);
  // What is malformed, or null.
  const char* error() const { return error_; }
  // How many bytes of the message have been read.
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
