#include <fmt/format.h>
#include <fmt/ostream.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/printable.h"
#include "weights/checkpoint.h"
#include "weights/hf_checkpoint.h"
#include "weights/inspect.h"
#include "weights/inspect_tensors.h"

namespace tokamak {
namespace {

using Json = nlohmann::ordered_json;

// The fields of generation_config.json, by their own names.
Json GenerationJson(const GenerationDefaults& generation) {
  const SamplingDefaults& sampling = generation.sampling;
  Json json = Json::object();
  const auto add = [&](const char* name, const auto& value) {
    if (value) json[name] = *value;
  };
  add("temperature", sampling.temperature);
  add("top_k", sampling.top_k);
  add("top_p", sampling.top_p);
  add("min_p", sampling.min_p);
  add("typical_p", sampling.typical_p);
  add("repetition_penalty", sampling.repetition_penalty);
  add("max_new_tokens", sampling.max_tokens);
  if (!generation.eos_token_ids.empty()) json["eos_token_id"] = generation.eos_token_ids;
  return json;
}

void PrintText(const Checkpoint& checkpoint, std::ostream& out) {
  const SafetensorsModel& model = *checkpoint.safetensors;
  for (const SafetensorsPart& part : model.parts()) {
    fmt::print(out, "{}\n  safetensors, {} bytes, {} tensors, header of {} bytes\n",
               part.source->name(), part.source->size(), part.num_tensors, part.header_bytes);
  }
  fmt::print(out, "\nConfiguration\n");
  for (const auto& [name, value] : *checkpoint.config.AsObject()) {
    fmt::print(out, "  {:<32}  {}\n", Quoted(name), value.ToString(200));
  }
  const Json generation = GenerationJson(checkpoint.generation);
  if (!generation.empty()) {
    fmt::print(out, "\nGeneration defaults\n");
    for (const auto& [name, value] : generation.items()) {
      fmt::print(out, "  {:<32}  {}\n", name, value.dump());
    }
  }
  PrintTensors(model.tensors(), model.parts().size(), out);
}

Json ToJson(const Checkpoint& checkpoint) {
  const SafetensorsModel& model = *checkpoint.safetensors;
  Json root;
  root["files"] = Json::array();
  for (const SafetensorsPart& part : model.parts()) {
    root["files"].push_back({{"path", part.source->name()},
                             {"format", "safetensors"},
                             {"bytes", part.source->size()},
                             {"tensors", part.num_tensors},
                             {"header_bytes", part.header_bytes}});
  }
  root["config"] = Json::parse(checkpoint.config.Dump());
  root["generation_config"] = GenerationJson(checkpoint.generation);
  AddTensors(model.tensors(), root);
  return root;
}

}  // namespace

Status PrintHfInspection(const std::string& folder, bool json, std::ostream& out) {
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, OpenHfCheckpoint(folder));
  if (!json) {
    PrintText(checkpoint, out);
    return Status();
  }
  out << ToJson(checkpoint).dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
  return Status();
}

}  // namespace tokamak
