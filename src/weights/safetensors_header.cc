#include "weights/safetensors_header.h"

#include <fmt/format.h>

#include <map>

#include "base/error.h"
#include "base/printable.h"
#include "weights/config.h"
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

constexpr size_t kMaxDims = 32;
constexpr size_t kMaxTensors = size_t{1} << 22;
constexpr size_t kMaxFiles = 4096;

Result<std::vector<uint64_t>> ReadNumbers(const JsonValue& list, std::string_view where) {
  if (list.is_array() && list.size() > kMaxDims) return DataLoss("{}: a list is too long", where);
  std::vector<uint64_t> numbers;
  for (size_t i = 0; i < list.size() && list.is_array(); ++i) {
    if (const auto number = (*list.AsArray())[i].AsUint()) numbers.push_back(*number);
  }
  if (list.is_array() && numbers.size() == list.size()) return numbers;
  return DataLoss("{} must be a list of integers, none of them negative or a fraction, but is {}",
                  where, list.ToString());
}

// `where` names the file and the tensor.
Result<SafetensorsHeader::Entry> ReadEntry(const std::string& name, const JsonValue& fields,
                                           const std::string& where) {
  if (!fields.is_object()) {
    return DataLoss("{}: expected an object, got {}", where, fields.ToString());
  }
  for (const auto& [field, value] : *fields.AsObject()) {
    if (field == "dtype" || field == "shape" || field == "data_offsets") continue;
    return DataLoss("{}: field {} is not part of the format", where, Quoted(field));
  }
  const JsonValue* dtype = fields.Find("dtype");
  const JsonValue* shape = fields.Find("shape");
  const JsonValue* offsets = fields.Find("data_offsets");
  if (dtype == nullptr || !dtype->is_string() || shape == nullptr || offsets == nullptr) {
    return DataLoss("{}: needs a dtype, a shape and two data_offsets", where);
  }
  SafetensorsHeader::Entry entry{.name = name, .dtype = *dtype->AsString(), .shape = {}};
  ASSIGN_OR_RETURN(entry.shape, ReadNumbers(*shape, where + ": shape"));
  ASSIGN_OR_RETURN(const auto range, ReadNumbers(*offsets, where + ": data_offsets"));
  if (range.size() != 2) return DataLoss("{}: data_offsets must be two numbers", where);
  entry.begin = range[0];
  entry.end = range[1];
  return entry;
}

// A path could lead out of the user's folder.
bool IsFileName(std::string_view file) {
  return file.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos &&
         file.ends_with(".safetensors") && !file.starts_with('.');
}

}  // namespace

const SafetensorsType* FindSafetensorsType(std::string_view name) {
  for (const SafetensorsType& type : kTypes) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json, const std::string& source) {
  ASSIGN_OR_RETURN(const JsonValue entries, ParseConfigJson(json, source, json.size()));
  if (entries.size() > kMaxTensors) {
    return DataLoss("{}: there are more tensors than are supported", source);
  }
  SafetensorsHeader header;
  for (const auto& [name, value] : *entries.AsObject()) {
    if (name.empty()) return DataLoss("{}: a tensor has no name", source);
    if (name != "__metadata__") {
      const std::string where = fmt::format("{}: tensor {}", source, Quoted(name));
      ASSIGN_OR_RETURN(SafetensorsHeader::Entry entry, ReadEntry(name, value, where));
      header.entries.push_back(std::move(entry));
      continue;
    }
    if (!value.is_object()) return DataLoss("{}: __metadata__ must be an object", source);
    for (const auto& [key, text] : *value.AsObject()) {
      if (!text.is_string()) {
        return DataLoss("{}: metadata {} must be a string", source, Quoted(key));
      }
      header.metadata.emplace_back(key, *text.AsString());
    }
  }
  return header;
}

Result<SafetensorsIndex> ParseSafetensorsIndex(std::string_view json, const std::string& source) {
  ASSIGN_OR_RETURN(const JsonValue content, ParseConfigJson(json, source, json.size()));
  const JsonValue* map = content.Find("weight_map");
  if (map == nullptr || !map->is_object() || map->size() == 0) {
    return DataLoss("{}: has no \"weight_map\" that names a file", source);
  }
  SafetensorsIndex index;
  std::map<std::string, size_t> places;
  for (const auto& [tensor, value] : *map->AsObject()) {
    const std::string* file = value.AsString();
    if (file == nullptr || !IsFileName(*file)) {
      return DataLoss(
          "{}: weight_map: tensor {} is in {}, which is not the name of a .safetensors file next "
          "to the index",
          source, Quoted(tensor), value.ToString());
    }
    const auto [place, fresh] = places.emplace(*file, index.files.size());
    if (fresh) index.files.push_back(*file);
    if (index.files.size() > kMaxFiles) {
      return DataLoss("{}: there are more files than are supported", source);
    }
    index.tensor_files.emplace(tensor, place->second);
  }
  return index;
}

}  // namespace tokamak
