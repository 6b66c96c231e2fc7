#include "weights/inspect.h"

#include <sys/stat.h>

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/printable.h"
#include "weights/inspect_tensors.h"

namespace tokamak {
namespace {

using Json = nlohmann::ordered_json;

// How many elements of an array and bytes of a string are shown.
constexpr uint64_t kShownElements = 6;
constexpr size_t kShownBytes = 200;

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
  // The shortest text that reads back as the same number in its own precision.
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
  PrintTensors(file.tensors(), file.parts().size(), out);
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
  // JSON has no infinities or NaN.
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
  // Arrays are cut to their first elements; "count" is the full length.
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
  AddTensors(file.tensors(), root);
  return root;
}

}  // namespace

void PrintInspection(const GgufFile& file, bool json, std::ostream& out) {
  if (!json) {
    PrintText(file, out);
    return;
  }
  // Shows text that is not UTF-8 with U+FFFD.
  out << ToJson(file).dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
}

Status PrintInspection(const std::string& path, bool json, std::ostream& out) {
  struct stat info;
  if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    return PrintHfInspection(path, json, out);
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<const GgufFile> file, GgufFile::Open(path));
  PrintInspection(*file, json, out);
  return Status();
}

}  // namespace tokamak
