#include "weights/gguf.h"

#include <fmt/format.h>

#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "base/printable.h"
#include "weights/gguf_parser.h"

namespace tokamak {

const std::byte* GgufValue::data() const { return storage_->bytes.data() + offset_; }

GgufValue GgufValue::Element(uint64_t i) const {
  CHECK(is_array() && i < size_);
  if (element_type_ == GgufType::kArray) return storage_->arrays[first_ + i];
  GgufValue element;
  element.storage_ = storage_;
  element.type_ = element_type_;
  if (element_type_ == GgufType::kString) {
    const uint64_t offset = storage_->strings[first_ + i];
    std::memcpy(&element.size_, storage_->bytes.data() + offset, sizeof(uint64_t));
    element.offset_ = offset + sizeof(uint64_t);
  } else {
    element.offset_ = offset_ + i * ScalarBytes(element_type_);
  }
  return element;
}

namespace {

template <typename T>
T Load(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof(T));
  return value;
}

}  // namespace

std::optional<bool> GgufValue::Bool() const {
  if (type_ != GgufType::kBool) return std::nullopt;
  return Load<uint8_t>(data()) != 0;
}

std::optional<int64_t> GgufValue::Int() const {
  switch (type_) {
    case GgufType::kUint8:
      return Load<uint8_t>(data());
    case GgufType::kInt8:
      return Load<int8_t>(data());
    case GgufType::kUint16:
      return Load<uint16_t>(data());
    case GgufType::kInt16:
      return Load<int16_t>(data());
    case GgufType::kUint32:
      return Load<uint32_t>(data());
    case GgufType::kInt32:
      return Load<int32_t>(data());
    case GgufType::kInt64:
      return Load<int64_t>(data());
    case GgufType::kUint64: {
      const auto value = Load<uint64_t>(data());
      if (value > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    default:
      return std::nullopt;
  }
}

std::optional<uint64_t> GgufValue::Uint() const {
  if (type_ == GgufType::kUint64) return Load<uint64_t>(data());
  const std::optional<int64_t> value = Int();
  if (!value || *value < 0) return std::nullopt;
  return static_cast<uint64_t>(*value);
}

std::optional<double> GgufValue::Number() const {
  if (type_ == GgufType::kFloat32) return Load<float>(data());
  if (type_ == GgufType::kFloat64) return Load<double>(data());
  if (type_ == GgufType::kUint64) return static_cast<double>(Load<uint64_t>(data()));
  if (const std::optional<int64_t> value = Int()) return static_cast<double>(*value);
  return std::nullopt;
}

std::optional<std::string_view> GgufValue::String() const {
  if (type_ != GgufType::kString) return std::nullopt;
  return std::string_view(reinterpret_cast<const char*>(data()), size_);
}

const GgufValue* GgufMetadata::Find(std::string_view key) const {
  const auto it = index_.find(key);
  return it == index_.end() ? nullptr : &entries_[it->second].value;
}

Result<const GgufValue*> GgufMetadata::Require(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return NotFound("{}: the metadata has no {}", file_, Quoted(key));
  return value;
}

template <typename T, typename Convert>
Result<T> GgufMetadata::Scalar(std::string_view key, const char* kind, Convert convert) const {
  ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  const auto converted = convert(*value);
  if (!converted) {
    return DataLoss("{}: metadata {} has type {}, expected {}", file_, Quoted(key),
                    Name(value->type()), kind);
  }
  return T(*converted);
}

template <typename T, typename Convert>
Result<std::vector<T>> GgufMetadata::Array(std::string_view key, const char* kind,
                                           Convert convert) const {
  ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  if (!value->is_array()) {
    return DataLoss("{}: metadata {} has type {}, expected an array of {}", file_, Quoted(key),
                    Name(value->type()), kind);
  }
  std::vector<T> out;
  out.reserve(value->size());
  for (uint64_t i = 0; i < value->size(); ++i) {
    const auto converted = convert(value->Element(i));
    if (!converted) {
      return DataLoss("{}: metadata {}[{}] has type {}, expected {}", file_, Quoted(key), i,
                      Name(value->element_type()), kind);
    }
    out.emplace_back(*converted);
  }
  return out;
}

Result<bool> GgufMetadata::Bool(std::string_view key) const {
  return Scalar<bool>(key, "bool", [](const GgufValue& v) { return v.Bool(); });
}
Result<int64_t> GgufMetadata::Int(std::string_view key) const {
  return Scalar<int64_t>(key, "an integer", [](const GgufValue& v) { return v.Int(); });
}
Result<double> GgufMetadata::Number(std::string_view key) const {
  return Scalar<double>(key, "a number", [](const GgufValue& v) { return v.Number(); });
}
Result<std::string> GgufMetadata::String(std::string_view key) const {
  return Scalar<std::string>(key, "a string", [](const GgufValue& v) { return v.String(); });
}
Result<std::vector<bool>> GgufMetadata::Bools(std::string_view key) const {
  return Array<bool>(key, "booleans", [](const GgufValue& v) { return v.Bool(); });
}
Result<std::vector<int64_t>> GgufMetadata::Ints(std::string_view key) const {
  return Array<int64_t>(key, "integers", [](const GgufValue& v) { return v.Int(); });
}
Result<std::vector<double>> GgufMetadata::Numbers(std::string_view key) const {
  return Array<double>(key, "numbers", [](const GgufValue& v) { return v.Number(); });
}
Result<std::vector<std::string>> GgufMetadata::Strings(std::string_view key) const {
  return Array<std::string>(key, "strings", [](const GgufValue& v) { return v.String(); });
}

}  // namespace tokamak
