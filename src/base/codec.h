// Encodes plain values in bytes. The fields of a struct are listed once, for writing and reading,
// in namespace tokamak::codec; `a` is an Encoder or a Decoder:
//   void Field(auto& a, Point& v) {
//     Field(a, "x", v.x);
//     Field(a, "labels", v.labels, kMaxLabels);
//   }
// Names appear in errors only.
//
// Integers are varints, signed ones zigzag; floats are their little-endian bits. A list or text is
// its length, then its elements; a list of uint32_t is a bit set, with 4 bytes for each. An
// optional is a bool, then the value if there is one. Every value has one encoding.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tokamak/status.h"

namespace tokamak::codec {

static_assert(std::endian::native == std::endian::little);

inline constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

class Encoder {
 public:
  explicit Encoder(std::string* out) : out_(*out) {}
  static constexpr bool kReads = false;

  void Unsigned(uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_.push_back(static_cast<char>(value | 0x80));
    out_.push_back(static_cast<char>(value));
  }
  void Bytes(const void* data, size_t size) { out_.append(static_cast<const char*>(data), size); }

 private:
  std::string& out_;
};

// Accepts only what an Encoder writes. After the first error all values are zero or empty.
// Allocates in proportion to the bytes, whatever counts they contain.
class Decoder {
 public:
  explicit Decoder(std::string_view bytes) : bytes_(bytes) {}
  static constexpr bool kReads = true;

  uint64_t Unsigned();
  void Bytes(void* data, size_t size);
  // Reads the length of a list: at most `most`, and no more than the bytes can hold.
  size_t Count(uint64_t most, size_t element_bytes);
  std::string_view Text(size_t size);

  bool ok() const { return error_.empty(); }
  // Keeps the first error. `what` follows the place of the value that was read last.
  void Fail(std::string what);
  // Prepends a field or "[index]" to the path of the error, from the innermost to the outermost.
  void Within(std::string_view part);
  // kDataLoss, "rows[2].drafts: byte 17: ...", unless all bytes were read without an error.
  Status Finish();

 private:
  std::string_view Rest() const { return bytes_.substr(offset_); }

  const std::string_view bytes_;
  size_t offset_ = 0;
  size_t start_ = 0;  // of the value that was read last
  std::string error_;
  std::string path_;  // of the error
};

// Scalars.

template <typename A, std::integral T>
void Field(A& a, T& value) {
  constexpr bool kSigned = std::is_signed_v<T>;
  if constexpr (A::kReads) {
    const uint64_t bits = a.Unsigned();
    const uint64_t wide = kSigned ? (bits >> 1) ^ (~(bits & 1) + 1) : bits;
    value = static_cast<T>(wide);
    if (static_cast<uint64_t>(value) == wide) return;
    value = 0;
    a.Fail("is out of range for its type");
  } else {
    const auto wide = static_cast<uint64_t>(value);
    a.Unsigned(kSigned ? (wide << 1) ^ (~(wide >> 63) + 1) : wide);
  }
}
// An index: 0 <= value < end.
struct Below {
  uint64_t end = kNoLimit;
};
template <typename A, std::integral T>
void Field(A& a, T& value, Below below) {
  Field(a, value);
  if constexpr (A::kReads) {
    if (below.end == kNoLimit || static_cast<uint64_t>(value) < below.end) return;
    a.Fail("is " + std::to_string(value) + ", which is not below " + std::to_string(below.end));
  }
}
template <typename A, std::floating_point T>
void Field(A& a, T& value) {
  a.Bytes(&value, sizeof(value));
}
template <typename A, typename T>
requires std::is_enum_v<T>
void Field(A& a, T& value, T last) {
  auto number = static_cast<uint64_t>(value);
  Field(a, number, Below{static_cast<uint64_t>(last) + 1});
  if constexpr (A::kReads) value = static_cast<T>(a.ok() ? number : 0);
}
template <typename A>
void Field(A& a, std::string& value) {
  if constexpr (A::kReads) {
    value = a.Text(a.Count(kNoLimit, 1));
  } else {
    a.Unsigned(value.size());
    a.Bytes(value.data(), value.size());
  }
}

// The fields of a struct. `limit`: the last value of an enum, Below, or a list's greatest length.

template <typename A, typename T, typename... Limit>
void Field(A& a, const char* name, T& value, Limit... limit) {
  if constexpr (A::kReads) {
    if (!a.ok()) return;
    Field(a, value, limit...);
    if (!a.ok()) a.Within(name);
  } else {
    Field(a, value, limit...);
  }
}
// Without names.
template <typename A, typename... T>
void Fields(A& a, T&... values) {
  (Field(a, values), ...);
}

// Containers. The Field functions of their elements are found on instantiation.

template <typename A, typename T, typename U>
void Field(A& a, std::pair<T, U>& value) {
  Fields(a, value.first, value.second);
}
template <typename A, typename T>
void Field(A& a, std::optional<T>& value) {
  bool present = value.has_value();
  Field(a, present);
  if constexpr (A::kReads) {
    if (!present) return value.reset();
    value = T();  // clang 14 cannot emplace a nested struct with default values
  }
  if (present) Field(a, *value);
}
template <typename A, typename T>
void Field(A& a, std::vector<T>& value, uint64_t most) {
  if constexpr (A::kReads) {
    const size_t count = a.Count(most, 1);
    value.clear();
    // Others grow as they are read: an element may take far more memory than its bytes.
    if constexpr (std::is_arithmetic_v<T>) value.reserve(count);
    for (size_t i = 0; i < count && a.ok(); ++i) {
      Field(a, value.emplace_back());
      if (!a.ok()) a.Within("[" + std::to_string(i) + "]");
    }
  } else {
    a.Unsigned(value.size());
    for (T& element : value) Field(a, element);
  }
}
template <typename A>
void Field(A& a, std::vector<uint32_t>& bits, uint64_t most) {
  if constexpr (A::kReads) {
    bits.resize(a.Count(most, sizeof(uint32_t)));
  } else {
    a.Unsigned(bits.size());
  }
  a.Bytes(bits.data(), bits.size() * sizeof(uint32_t));
}
template <typename A, typename T>
void Field(A& a, std::vector<T>& value) {
  Field(a, value, kNoLimit);
}

}  // namespace tokamak::codec
