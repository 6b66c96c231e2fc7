#include "weights/inspect_tensors.h"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/printable.h"

namespace tokamak {
namespace {

using Json = nlohmann::ordered_json;

struct TypeTotal {
  uint64_t tensors = 0, elements = 0, bytes = 0;
};

std::map<std::string, TypeTotal> TotalsOf(const std::vector<StoredTensor>& tensors) {
  std::map<std::string, TypeTotal> totals;
  for (const StoredTensor& tensor : tensors) {
    TypeTotal& total = totals[tensor.type_name];
    ++total.tensors;
    // Counts from a hostile file may wrap around, but they are only printed.
    total.elements += static_cast<uint64_t>(tensor.shape.elements());
    total.bytes += tensor.bytes.value_or(0);
  }
  return totals;
}

void PrintTotal(const std::string& name, const TypeTotal& total, std::ostream& out) {
  const double bits = total.elements == 0 ? 0
                                          : 8.0 * static_cast<double>(total.bytes) /
                                                static_cast<double>(total.elements);
  fmt::print(out, "  {:<24}  {:>8}  {:>16}  {:>16}  {:>16.2f}\n", name, total.tensors,
             total.elements, total.bytes, bits);
}

// Quoted() without the quotes.
std::string Escaped(const std::string& name) {
  const std::string quoted = Quoted(name, 200);
  return quoted.substr(1, quoted.size() - 2);
}

}  // namespace

void PrintTensors(const std::vector<StoredTensor>& tensors, size_t num_parts, std::ostream& out) {
  size_t width = 40;
  for (const StoredTensor& tensor : tensors) {
    width = std::max(width, std::min<size_t>(tensor.name.size(), 70));
  }
  fmt::print(out, "\nTensors\n  {:<{}}  {:<8}  {:<20}  {:>12}  {:>14}{}\n", "name", width, "type",
             "shape", "bytes", "offset", num_parts > 1 ? "  file" : "");
  for (const StoredTensor& tensor : tensors) {
    fmt::print(out, "  {:<{}}  {:<8}  {:<20}  {:>12}  {:>14}{}\n", Escaped(tensor.name), width,
               tensor.type_name, tensor.shape.ToString(),
               tensor.bytes ? fmt::format("{}", *tensor.bytes) : "?", tensor.offset,
               num_parts > 1 ? fmt::format("  {}", tensor.part + 1) : "");
  }
  fmt::print(out, "\nTotals\n  {:<24}  {:>8}  {:>16}  {:>16}  {:>16}\n", "type", "tensors",
             "elements", "bytes", "bits per element");
  TypeTotal all;
  for (const auto& [name, total] : TotalsOf(tensors)) {
    PrintTotal(name, total, out);
    all.tensors += total.tensors;
    all.elements += total.elements;
    all.bytes += total.bytes;
  }
  PrintTotal("all", all, out);
}

void AddTensors(const std::vector<StoredTensor>& tensors, Json& root) {
  root["tensors"] = Json::array();
  for (const StoredTensor& tensor : tensors) {
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
  for (const auto& [name, total] : TotalsOf(tensors)) {
    root["totals"][name] = {
        {"tensors", total.tensors}, {"elements", total.elements}, {"bytes", total.bytes}};
  }
}

}  // namespace tokamak
