#include "tokenizer/proto_reader.h"

namespace tokamak {

bool ProtoReader::Fail(const char* what) {
  error_ = what;
  return false;
}

bool ProtoReader::Varint(uint64_t& value) {
  value = 0;
  for (unsigned shift = 0; shift < 70; shift += 7) {
    if (offset_ == message_.size()) return Fail("it ends inside a number");
    const auto byte = static_cast<uint8_t>(message_[offset_++]);
    if (shift == 63 && byte > 1) break;
    value |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return true;
  }
  return Fail("a number has more than 64 bits");
}

bool ProtoReader::Fixed(size_t size, uint64_t& value) {
  if (message_.size() - offset_ < size) return Fail("it ends inside a number");
  value = 0;
  for (size_t i = size; i-- > 0;) {
    value = value << 8 | static_cast<uint8_t>(message_[offset_ + i]);
  }
  offset_ += size;
  return true;
}

bool ProtoReader::Next(Field& field) {
  if (error_ != nullptr || offset_ == message_.size()) return false;
  uint64_t tag = 0;
  if (!Varint(tag)) return false;
  if (tag >> 3 == 0 || tag >> 3 >= uint64_t{1} << 29) return Fail("a field has no valid number");
  field = {};
  field.number = static_cast<uint32_t>(tag >> 3);
  switch (tag & 7) {
    case 0:
      return Varint(field.value);
    case 1:
      field.type = WireType::kFixed64;
      return Fixed(8, field.value);
    case 2: {
      field.type = WireType::kBytes;
      uint64_t size = 0;
      if (!Varint(size)) return false;
      if (size > message_.size() - offset_) return Fail("a field is longer than what follows");
      field.bytes = message_.substr(offset_, size);
      offset_ += size;
      return true;
    }
    case 5:
      field.type = WireType::kFixed32;
      return Fixed(4, field.value);
    default:
      return Fail("a field has an unused wire type");
  }
}

}  // namespace tokamak
