// GGUF model files, versions 2 and 3, little-endian, whole or split over several files.
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
//
// The metadata region (header, key-value pairs, tensor descriptions; a few MB) is read into memory,
// tensor data by positioned reads. Nothing is mapped: a file that shrinks or a disk that fails
// gives an error, not a signal. No size in the file is trusted: each is checked against the
// remaining bytes before anything is allocated.
//
// Errors are kDataLoss (malformed) or kUnimplemented (not supported) and name the file, the byte
// offset and the field: "model.gguf: at byte 24: metadata 0, key length: ...".
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ops/weight_source.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"
#include "tokamak/status.h"
#include "weights/byte_source.h"
#include "weights/gguf_types.h"
#include "weights/stored_tensor.h"

namespace tokamak {

struct GgufStorage;  // the bytes that values point into

// A handle to a metadata value. Cheap to copy, valid while its GgufFile lives.
class GgufValue {
 public:
  GgufType type() const { return type_; }
  bool is_array() const { return type_ == GgufType::kArray; }
  // Arrays only: type (which may be array again) and number of elements.
  GgufType element_type() const { return element_type_; }
  uint64_t size() const { return size_; }
  GgufValue Element(uint64_t i) const;  // i < size()

  // The value as a C++ type; absent if it is of another kind or does not fit.
  std::optional<bool> Bool() const;
  std::optional<int64_t> Int() const;    // from any integer type
  std::optional<uint64_t> Uint() const;  // from any non-negative integer
  std::optional<double> Number() const;  // from any integer or floating-point type
  std::optional<std::string_view> String() const;

 private:
  friend class GgufParser;
  const std::byte* data() const;

  const GgufStorage* storage_ = nullptr;
  GgufType type_ = GgufType::kUint8;
  GgufType element_type_ = GgufType::kUint8;
  uint64_t offset_ = 0;  // of the payload: after a string's length or an array's header
  uint64_t size_ = 1;    // bytes of a string, elements of an array
  uint64_t first_ = 0;   // arrays of strings or arrays: index of the elements in the storage
};

// Key-value pairs in file order. Errors of the getters name the file and the key.
class GgufMetadata {
 public:
  struct Entry {
    std::string key;
    GgufValue value;
  };

  const std::vector<Entry>& entries() const { return entries_; }
  // Null if absent.
  const GgufValue* Find(std::string_view key) const;
  bool Has(std::string_view key) const { return Find(key) != nullptr; }

  Result<bool> Bool(std::string_view key) const;
  Result<int64_t> Int(std::string_view key) const;
  Result<double> Number(std::string_view key) const;
  Result<std::string> String(std::string_view key) const;
  Result<std::vector<bool>> Bools(std::string_view key) const;
  Result<std::vector<int64_t>> Ints(std::string_view key) const;
  Result<std::vector<double>> Numbers(std::string_view key) const;
  Result<std::vector<std::string>> Strings(std::string_view key) const;

 private:
  friend class GgufParser;
  Result<const GgufValue*> Require(std::string_view key) const;
  template <typename T, typename Convert>
  Result<T> Scalar(std::string_view key, const char* kind, Convert convert) const;
  template <typename T, typename Convert>
  Result<std::vector<T>> Array(std::string_view key, const char* kind, Convert convert) const;

  std::string file_;
  std::vector<Entry> entries_;
  std::map<std::string, size_t, std::less<>> index_;
};

// One file of a model.
struct GgufPart {
  std::shared_ptr<const ByteSource> source;
  uint32_t version = 0;
  uint32_t alignment = 0;
  uint64_t data_offset = 0;  // start of the tensor data
  size_t num_tensors = 0;
  GgufMetadata metadata;
  std::shared_ptr<const GgufStorage> storage;
};

class GgufFile {
 public:
  // Opens `path` and, for a split model, its siblings. `path` must be the first part.
  static Result<std::shared_ptr<const GgufFile>> Open(const std::string& path);
  static Result<std::shared_ptr<const GgufFile>> FromParts(
      std::vector<std::shared_ptr<const ByteSource>> parts);

  const std::string& name() const { return parts_.front().source->name(); }
  const GgufMetadata& metadata() const { return parts_.front().metadata; }
  const std::vector<GgufPart>& parts() const { return parts_; }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  // Null if absent.
  const StoredTensor* FindTensor(std::string_view name) const;

  // The tensor's data; thread-safe, and valid without this object. kUnimplemented if this build
  // cannot read its type.
  Result<std::shared_ptr<const WeightSource>> Weight(const StoredTensor& tensor) const;

 private:
  Status AddPart(std::shared_ptr<const ByteSource> source);
  Status CheckSplit() const;
  Status IndexTensors();

  std::vector<GgufPart> parts_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, size_t, std::less<>> tensor_index_;
};

}  // namespace tokamak
