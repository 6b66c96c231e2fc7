#include "weights/safetensors_header.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/error.h"
#include "base/printable.h"
#include "weights/safetensors.h"

namespace tokamak {
namespace {

constexpr SafetensorsType kTypes[] = {
    {"F32", 4, DType::kF32},      {"F16", 2, DType::kF16},      {"BF16", 2, DType::kBF16},
    {"F8_E4M3", 1, std::nullopt}, {"F8_E5M2", 1, std::nullopt}, {"F8_E8M0", 1, std::nullopt},
    {"F64", 8, std::nullopt},     {"I64", 8, std::nullopt},     {"I32", 4, std::nullopt},
    {"I16", 2, std::nullopt},     {"I8", 1, std::nullopt},      {"U64", 8, std::nullopt},
    {"U32", 4, std::nullopt},     {"U16", 2, std::nullopt},     {"U8", 1, std::nullopt},
    {"BOOL", 1, std::nullopt},
};

// More than any tensor has. The rank is checked again when shapes are made.
constexpr size_t kMaxDims = 32;
constexpr size_t kMaxFiles = 4096;
constexpr size_t kMaxTensors = size_t{1} << 22;

// Shared by the parsers of headers and indexes: the file's name and the first error.
class StrictSax : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit StrictSax(const std::string& source) : source_(source) {}

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("true or false"); }
  bool number_integer(int64_t) override { return Unexpected("a negative number"); }
  bool number_unsigned(uint64_t) override { return Unexpected("a number"); }
  bool number_float(double, const std::string&) override { return Unexpected("a fraction"); }
  bool string(std::string&) override { return Unexpected("a string"); }
  bool binary(nlohmann::json::binary_t&) override { return Unexpected("binary data"); }
  bool start_object(size_t) override { return Unexpected("an object"); }
  bool end_object() override { return true; }
  bool start_array(size_t) override { return Unexpected("an array"); }
  bool end_array() override { return true; }
  bool parse_error(size_t position, const std::string& token,
                   const nlohmann::detail::exception&) override {
    return Fail(
        fmt::format("malformed JSON at byte {} of the JSON text, at {}", position, Quoted(token)));
  }
  const Status& status() const { return status_; }

 protected:
  bool Fail(const std::string& message) {
    if (status_.ok()) status_ = DataLoss("{}: {}", source_, message);
    return false;
  }
  virtual bool Unexpected(const char* what) = 0;

 private:
  const std::string& source_;
  Status status_;
};

class HeaderSax final : public StrictSax {
 public:
  using StrictSax::StrictSax;
  SafetensorsHeader header;

  bool start_object(size_t) override {
    if (place_ == Place::kOutside) return Move(Place::kTop);
    if (place_ == Place::kTop && !name_.empty()) {
      if (name_ == "__metadata__") return Move(Place::kMetadata);
      header.entries.push_back({.name = name_, .dtype = {}, .shape = {}});
      fields_ = 0;
      return Move(Place::kEntry);
    }
    return Unexpected("an object");
  }
  bool end_object() override {
    if (place_ == Place::kEntry && fields_ != (kDtype | kShape | kOffsets)) {
      return Fail(
          fmt::format("tensor {}: needs a dtype, a shape and two data_offsets", Quoted(name_)));
    }
    return Move(place_ == Place::kTop ? Place::kOutside : Place::kTop);
  }
  bool key(std::string& text) override {
    if (place_ == Place::kTop) {
      if (text.empty()) return Fail("a tensor has no name");
      if (!names_.insert(text).second) return Fail(Quoted(text) + " appears twice");
      if (names_.size() > kMaxTensors) return Fail("there are more tensors than are supported");
      name_ = std::move(text);
      return true;
    }
    if (place_ == Place::kEntry) {
      const int bit = text == "dtype"          ? kDtype
                      : text == "shape"        ? kShape
                      : text == "data_offsets" ? kOffsets
                                               : 0;
      if (bit == 0 || (fields_ & bit) != 0) {
        return Fail(fmt::format("tensor {}: field {} {}", Quoted(name_), Quoted(text),
                                bit == 0 ? "is not part of the format" : "appears twice"));
      }
      field_ = bit;
      return true;
    }
    metadata_key_ = std::move(text);
    return true;
  }
  bool string(std::string& text) override {
    if (place_ == Place::kMetadata) {
      header.metadata.emplace_back(metadata_key_, std::move(text));
      return true;
    }
    if (place_ != Place::kEntry || field_ != kDtype) return Unexpected("a string");
    header.entries.back().dtype = std::move(text);
    fields_ |= kDtype;
    return true;
  }
  bool start_array(size_t) override {
    if (place_ != Place::kEntry || field_ == kDtype) return Unexpected("an array");
    numbers_.clear();
    return Move(Place::kArray);
  }
  bool number_unsigned(uint64_t value) override {
    if (place_ != Place::kArray) return Unexpected("a number");
    if (numbers_.size() == kMaxDims) {
      return Fail("tensor " + Quoted(name_) + ": a list is too long");
    }
    numbers_.push_back(value);
    return true;
  }
  bool end_array() override {
    SafetensorsHeader::Entry& entry = header.entries.back();
    place_ = Place::kEntry;
    fields_ |= field_;
    if (field_ == kShape) {
      entry.shape = numbers_;
      return true;
    }
    if (numbers_.size() != 2) {
      return Fail("tensor " + Quoted(name_) + ": data_offsets must be two numbers");
    }
    entry.begin = numbers_[0];
    entry.end = numbers_[1];
    return true;
  }

 private:
  enum class Place { kOutside, kTop, kMetadata, kEntry, kArray };
  enum Field { kDtype = 1, kShape = 2, kOffsets = 4 };

  bool Move(Place place) {
    place_ = place;
    return true;
  }
  bool Unexpected(const char* what) override {
    if (place_ == Place::kOutside) return Fail("the header must be an object");
    return Fail(fmt::format("{}{}: {} is not expected there",
                            place_ == Place::kMetadata ? "metadata " : "tensor ",
                            Quoted(place_ == Place::kMetadata ? metadata_key_ : name_), what));
  }

  Place place_ = Place::kOutside;
  std::string name_, metadata_key_;
  std::unordered_set<std::string> names_;
  int field_ = 0, fields_ = 0;
  std::vector<uint64_t> numbers_;
};

// Reads "weight_map" and skips everything else.
class IndexSax final : public StrictSax {
 public:
  using StrictSax::StrictSax;
  SafetensorsIndex index;
  bool found = false;

  bool null() override { return Ignored("null"); }
  bool boolean(bool) override { return Ignored("true or false"); }
  bool number_integer(int64_t) override { return Ignored("a number"); }
  bool number_unsigned(uint64_t) override { return Ignored("a number"); }
  bool number_float(double, const std::string&) override { return Ignored("a number"); }
  bool start_object(size_t) override {
    if (in_map()) return Unexpected("an object");
    if (depth_ == 1 && key_ == "weight_map") {
      if (found) return Fail("\"weight_map\" appears twice");
      found = true;
      map_ = true;
    }
    return Enter();
  }
  bool end_object() override {
    if (--depth_ == 1) map_ = false;
    return true;
  }
  bool start_array(size_t) override {
    if (depth_ == 0 || in_map()) return Unexpected("an array");
    return Enter();
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool key(std::string& text) override {
    key_ = std::move(text);
    return true;
  }
  bool string(std::string& file) override {
    if (!in_map()) return Ignored("a string");
    // A path could lead out of the user's folder.
    const bool plain = file.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
    if (!plain || !file.ends_with(".safetensors") || file.front() == '.') {
      return Fail(
          fmt::format("weight_map: tensor {} is in {}, which is not the name of a .safetensors "
                      "file next to the index",
                      Quoted(key_), Quoted(file)));
    }
    const auto [it, fresh] = places_.emplace(file, index.files.size());
    if (fresh) index.files.push_back(file);
    if (index.files.size() > kMaxFiles) return Fail("there are more files than are supported");
    if (!index.tensor_files.emplace(key_, it->second).second) {
      return Fail("weight_map: tensor " + Quoted(key_) + " appears twice");
    }
    return true;
  }

 private:
  bool in_map() const { return map_ && depth_ == 2; }
  bool Enter() { return ++depth_ <= 16 || Fail("objects and arrays are nested too deep"); }
  bool Ignored(const char* what) { return depth_ == 0 || in_map() ? Unexpected(what) : true; }
  bool Unexpected(const char* what) override {
    if (depth_ == 0) return Fail("must be a JSON object");
    return Fail(fmt::format("weight_map: tensor {}: expected the name of a file, got {}",
                            Quoted(key_), what));
  }

  int depth_ = 0;
  bool map_ = false;
  std::string key_;
  std::map<std::string, size_t> places_;
};

}  // namespace

const SafetensorsType* FindSafetensorsType(std::string_view name) {
  for (const SafetensorsType& type : kTypes) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json, const std::string& source) {
  HeaderSax sax(source);
  nlohmann::json::sax_parse(json.begin(), json.end(), &sax);
  RETURN_IF_ERROR(sax.status());
  return std::move(sax.header);
}

Result<SafetensorsIndex> ParseSafetensorsIndex(std::string_view json, const std::string& source) {
  IndexSax sax(source);
  nlohmann::json::sax_parse(json.begin(), json.end(), &sax);
  RETURN_IF_ERROR(sax.status());
  if (!sax.found || sax.index.files.empty()) {
    return DataLoss("{}: has no \"weight_map\" that names a file", source);
  }
  return std::move(sax.index);
}

}  // namespace tokamak
