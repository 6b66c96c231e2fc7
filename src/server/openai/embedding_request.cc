#include "server/openai/embedding_request.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <bit>
#include <cstddef>
#include <cstring>
#include <iterator>

#include "base/error.h"
#include "server/openai/json_fields.h"
#include "server/openai/other_fields.h"
#include "server/openai/request_limits.h"
#include "server/openai/response.h"

namespace tokamak {
namespace {

void Read(const JsonReader& fields, OpenAiEmbeddingRequest& request) {
  const JsonReader input = fields["input"];
  for (PromptInput& one : ReadPromptInputs(input, kMaxEmbeddingInputs)) {
    EmbeddingInput& to = request.engine_request.inputs.emplace_back();
    if (auto* ids = std::get_if<std::vector<int32_t>>(&one)) {
      to.token_ids = std::move(*ids);
      if (to.token_ids.empty()) {
        input[request.engine_request.inputs.size() - 1].Fail("must hold at least one token");
      }
    } else {
      to.text = std::get<std::string>(std::move(one));
    }
  }
  fields.Read("model", request.model);
  std::string format = "float";
  fields.Read("encoding_format", format);
  if (format != "float" && format != "base64") {
    fields.Fail("encoding_format", "must be \"float\" or \"base64\"");
  }
  request.base64 = format == "base64";
  EmbeddingRequest& engine_request = request.engine_request;
  fields.Read("dimensions", engine_request.dimensions);
  if (engine_request.dimensions && *engine_request.dimensions < 1) {
    fields.Fail("dimensions", "must be at least 1");
  }
  fields.Read("truncate_prompt_tokens", engine_request.truncate_prompt_tokens);
  fields.Read("prompt_name", engine_request.prompt_name);
  fields.Read("add_special_tokens", engine_request.add_special_tokens);
  fields.Read("timings", request.timings);
  std::string user;  // without effect
  fields.Read("user", user);
}

// Appends the base64 (RFC 4648, section 4) of the values as little-endian f32.
void AppendBase64(const std::vector<float>& values, std::string& out) {
  static_assert(std::endian::native == std::endian::little);
  const size_t size = values.size() * sizeof(float), begin = out.size();
  out.resize(begin + (size + 2) / 3 * 4 + 1);  // OpenSSL ends the text with a NUL byte
  EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data() + begin),
                  reinterpret_cast<const unsigned char*>(values.data()), static_cast<int>(size));
  out.pop_back();
}

}  // namespace

Result<OpenAiEmbeddingRequest> ParseEmbeddingRequest(const std::string& body) {
  ASSIGN_OR_RETURN(JsonValue json, ParseBody(body));
  ASSIGN_OR_RETURN(const FieldSpellings spellings, TakeOtherFields(kEmbeddingRequest, json));
  const JsonReader fields = ReadFields(json);
  OpenAiEmbeddingRequest request;
  Read(fields, request);
  RETURN_IF_ERROR(spellings.Apply(fields.status()));
  request.unknown_fields = spellings.Ignored(fields.Unread());
  return request;
}

std::vector<std::string> KnownEmbeddingFields() {
  OpenAiEmbeddingRequest request;
  return NamesReadBy([&](const JsonReader& fields) { Read(fields, request); });
}

size_t EmbeddingBytes(size_t dimensions, bool base64) {
  constexpr size_t kFields = 72;  // {"object":"embedding","index":2147483647,"embedding":[]},
  constexpr size_t kNumber = 17;  // a sign, 9 digits, a point, an exponent and a comma
  return kFields + (base64 ? (dimensions * sizeof(float) + 2) / 3 * 4 : dimensions * kNumber);
}

// Written piece by piece: a tree of JSON values for thousands of vectors would take gigabytes.
std::string FormatEmbeddings(const EmbeddingHead& head, const EmbeddingOutput& output) {
  std::string json = "{\"object\":\"list\",\"data\":[";
  for (size_t i = 0; i < output.vectors.size(); ++i) {
    fmt::format_to(std::back_inserter(json), "{}{{\"object\":\"embedding\",\"index\":{},",
                   i == 0 ? "" : ",", i);
    json += "\"embedding\":";
    if (head.base64) {
      json += '"';
      AppendBase64(output.vectors[i], json);
      json += "\"}";
      continue;
    }
    // Writes the shortest digits that give the same float.
    char separator = '[';
    for (const float value : output.vectors[i]) {
      fmt::format_to(std::back_inserter(json), "{}{}", separator, value);
      separator = ',';
    }
    json += "]}";
  }
  fmt::format_to(std::back_inserter(json),
                 "],\"model\":{},\"system_fingerprint\":{},\"usage\":{{\"prompt_tokens\":{},"
                 "\"total_tokens\":{}}}",
                 JsonValue(head.model).Dump(), JsonValue(head.system_fingerprint).Dump(),
                 output.usage.prompt_tokens, output.usage.prompt_tokens);
  if (head.timings) {
    const RequestTimings& t = output.timings;
    fmt::format_to(std::back_inserter(json),
                   ",\"timings\":{{\"queued_ms\":{},\"prefill_ms\":{},\"steps\":{}}}",
                   t.queued_seconds * 1e3, t.prefill_seconds * 1e3, t.steps);
  }
  json += '}';
  return json;
}

}  // namespace tokamak
