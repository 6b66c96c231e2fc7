#include "weights/inspect.h"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "weights/printable.h"

namespace tokamak {
namespace {

using Json = nlohmann::ordered_json;

// Elements of an array, and bytes of a string, that are shown.
constexpr uint64_t kShownElements = 6;
constexpr size_t kShownBytes = 200;

struct TypeTotal {
  uint64_t tensors = 0, elements = 0, bytes = 0;
};

// By name of the tensor type.
std::map<std::string, TypeTotal> TotalsOf(const GgufFile& file) {
  std::map<std::string, TypeTotal> totals;
  for (const GgufTensor& tensor : file.tensors()) {
    TypeTotal& total = totals[tensor.type_name];
    ++total.tensors;
    // Sums of 64-bit counts from a hostile file may wrap; they are printed and nothing else.
    total.elements += static_cast<uint64_t>(tensor.shape.elements());
    total.bytes += tensor.bytes.value_or(0);
  }
  return totals;
}

std::string TypeName(const GgufValue& value) {
  if (!value.is_array()) return Name(value.type());
  return fmt::format("{}[{}]", Name(value.element_type()), value.size());
}

std::string ValueText(const GgufValue& value) {
  if (value.is_array()) {
    std::string out = "[";
    for (uint64_t i = 0; i < std::min(value.size(), kShownElements); ++i) {
      out += (i > 0 ? ", " : "") + ValueText(value.Element(i));
    }
    return out + (value.size() > kShownElements ? ", ...]" : "]");
  }
  if (const auto text = value.String()) {
    const std::string quoted = Quoted(*text, kShownBytes);
    const bool cut = text->size() > kShownBytes;
    return cut ? fmt::format("{} ({} bytes)", quoted, text->size()) : quoted;
  }
  if (const auto flag = value.Bool()) return *flag ? "true" : "false";
  if (const auto number = value.Int()) return fmt::format("{}", *number);
  if (const auto number = value.Uint()) return fmt::format("{}", *number);
  // Shortest text that gives the number back in its own precision.
  const double number = *value.Number();
  if (value.type() == GgufType::kFloat32) return fmt::format("{}", static_cast<float>(number));
  return fmt::format("{}", number);
}

void PrintText(const GgufFile& file, std::ostream& out) {
  for (const GgufPart& part : file.parts()) {
    fmt::print(out,
               "{}\n  GGUF version {}, {} bytes, {} tensors, data from byte {}, alignment {}\n",
               part.source->name(), part.version, part.source->size(), part.num_tensors,
               part.data_offset, part.alignment);
  }
  fmt::print(out, "\nMetadata\n");
  size_t key_width = 0, type_width = 0;
  for (const auto& entry : file.metadata().entries()) {
    key_width = std::max(key_width, std::min<size_t>(entry.key.size(), 60));
    type_width = std::max(type_width, TypeName(entry.value).size());
  }
  for (const auto& entry : file.metadata().entries()) {
    const std::string quoted = Quoted(entry.key, 200);
    fmt::print(out, "  {:<{}}  {:<{}}  {}\n", quoted.substr(1, quoted.size() - 2), key_width,
               TypeName(entry.value), type_width, ValueText(entry.value));
  }
  fmt::print(out, "\nTensors\n  {:<40}  {:<8}  {:<20}  {:>12}  {:>14}{}\n", "name", "type", "shape",
             "bytes", "offset", file.parts().size() > 1 ? "  file" : "");
  for (const GgufTensor& tensor : file.tensors()) {
    const std::string quoted = Quoted(tensor.name, 200);
    fmt::print(out, "  {:<40}  {:<8}  {:<20}  {:>12}  {:>14}{}\n",
               quoted.substr(1, quoted.size() - 2), tensor.type_name, tensor.shape.ToString(),
               tensor.bytes ? fmt::format("{}", *tensor.bytes) : "?", tensor.offset,
               file.parts().size() > 1 ? fmt::format("  {}", tensor.part + 1) : "");
  }
  fmt::print(out, "\nTotals\n  {:<24}  {:>8}  {:>16}  {:>16}  {:>16}\n", "type", "tensors",
             "elements", "bytes", "bits per element");
  TypeTotal all;
  const auto print_total = [&](const std::string& name, const TypeTotal& total) {
    const double bits = total.elements == 0 ? 0
                                            : 8.0 * static_cast<double>(total.bytes) /
                                                  static_cast<double>(total.elements);
    fmt::print(out, "  {:<24}  {:>8}  {:>16}  {:>16}  {:>16.2f}\n", name, total.tensors,
               total.elements, total.bytes, bits);
  };
  for (const auto& [name, total] : TotalsOf(file)) {
    print_total(name, total);
    all.tensors += total.tensors;
    all.elements += total.elements;
    all.bytes += total.bytes;
  }
  print_total("all", all);
}

Json ValueJson(const GgufValue& value) {
  if (value.is_array()) {
    Json array = Json::array();
    for (uint64_t i = 0; i < std::min(value.size(), kShownElements); ++i) {
      array.push_back(ValueJson(value.Element(i)));
    }
    return array;
  }
  if (const auto text = value.String()) return std::string(*text);
  if (const auto flag = value.Bool()) return *flag;
  if (const auto number = value.Int()) return *number;
  if (const auto number = value.Uint()) return *number;
  const double number = *value.Number();
  // JSON has no infinities and no NaN.
  if (!std::isfinite(number)) return ValueText(value);
  return number;
}

Json ToJson(const GgufFile& file) {
  Json root;
  root["files"] = Json::array();
  for (const GgufPart& part : file.parts()) {
    root["files"].push_back({{"path", part.source->name()},
                             {"format", "GGUF"},
                             {"version", part.version},
                             {"bytes", part.source->size()},
                             {"tensors", part.num_tensors},
                             {"data_offset", part.data_offset},
                             {"alignment", part.alignment}});
  }
  // Arrays are cut to their first elements; "count" is their length.
  root["metadata"] = Json::array();
  for (const auto& entry : file.metadata().entries()) {
    Json item = {{"key", entry.key}, {"type", Name(entry.value.type())}};
    if (entry.value.is_array()) {
      item["element_type"] = Name(entry.value.element_type());
      item["count"] = entry.value.size();
    }
    item["value"] = ValueJson(entry.value);
    root["metadata"].push_back(std::move(item));
  }
  root["tensors"] = Json::array();
  for (const GgufTensor& tensor : file.tensors()) {
    Json shape = Json::array();
    for (int i = 0; i < tensor.shape.rank(); ++i) shape.push_back(tensor.shape[i]);
    root["tensors"].push_back({{"name", tensor.name},
                               {"type", tensor.type_name},
                               {"readable", tensor.dtype.has_value()},
                               {"shape", std::move(shape)},
                               {"bytes", tensor.bytes ? Json(*tensor.bytes) : Json()},
                               {"file", tensor.part},
                               {"offset", tensor.offset}});
  }
  root["totals"] = Json::object();
  for (const auto& [name, total] : TotalsOf(file)) {
    root["totals"][name] = {
        {"tensors", total.tensors}, {"elements", total.elements}, {"bytes", total.bytes}};
  }
  return root;
}

}  // namespace

void PrintInspection(const GgufFile& file, bool json, std::ostream& out) {
  if (!json) {
    PrintText(file, out);
    return;
  }
  // Text that is not UTF-8 is shown with U+FFFD.
  out << ToJson(file).dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
}

Status PrintInspection(const std::string& path, bool json, std::ostream& out) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const GgufFile> file, GgufFile::Open(path));
  PrintInspection(*file, json, out);
  out.flush();
  return out ? Status() : Unavailable("{}: cannot write the output", path);
}

}  // namespace tokamak
