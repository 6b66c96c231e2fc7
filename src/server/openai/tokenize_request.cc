#include "server/openai/tokenize_request.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "server/json_text.h"
#include "server/openai/json_fields.h"
#include "server/openai/other_fields.h"

namespace tokamak {
namespace {

constexpr size_t kMaxTokens = size_t{1} << 24;

// Returns whether the model is told about the tools.
bool ReadTokenize(const JsonReader& fields, const std::optional<ImageInfo>& images,
                  TokenizeRequest& request) {
  fields.Read("model", request.model);
  std::string text;
  fields.Read("text", text);
  const bool has_text = fields.Has("text");
  if (fields.Has("prompt")) {  // its name on other servers
    fields.Read("prompt", text);
    if (has_text) fields.Fail("prompt", "is another name of \"text\"; give one of them");
  }
  fields.Read("return_pieces", request.return_pieces);
  const bool any_text = has_text || fields.Has("prompt");
  request.add_special_tokens = any_text;
  fields.Read("add_special_tokens", request.add_special_tokens);
  if (any_text) {
    for (const char* name : {"messages", "tools", "tool_choice", "add_generation_prompt",
                             "chat_template_kwargs", "reasoning_effort", "mm_processor_kwargs"}) {
      if (fields.Has(name))
        fields.Fail(name, "goes with \"messages\"; give either text or messages");
    }
    request.text = std::move(text);
    return false;
  }
  if (!fields.Has("messages")) fields.Fail("text", "is missing; give it, or \"messages\"");
  return CheckConversation(fields, images, request.conversation);
}

void ReadDetokenize(const JsonReader& fields, DetokenizeRequest& request) {
  fields.Read("model", request.model);
  if (!fields.Has("tokens")) fields.Fail("tokens", "is missing");
  fields["tokens"].ForEach(kMaxTokens,
                           [&](const JsonReader& id) { request.tokens.push_back(id.Int32()); });
}

}  // namespace

Result<TokenizeRequest> ParseTokenizeRequest(const std::string& body,
                                             const std::optional<ImageInfo>& images) {
  ASSIGN_OR_RETURN(JsonValue json, ParseBody(body));
  ASSIGN_OR_RETURN(const FieldSpellings spellings, TakeOtherFields(kTokenizeRequest, json));
  const JsonReader fields = ReadFields(json);
  TokenizeRequest request;
  const bool use_tools = ReadTokenize(fields, images, request);
  RETURN_IF_ERROR(spellings.Apply(fields.status()));
  request.unknown_fields = spellings.Ignored(fields.Unread());
  if (!request.text) {
    RETURN_IF_ERROR(
        ReadConversation(json, spellings, use_tools, images, request.conversation, request.images));
  }
  return request;
}

Result<DetokenizeRequest> ParseDetokenizeRequest(const std::string& body) {
  ASSIGN_OR_RETURN(JsonValue json, ParseBody(body));
  ASSIGN_OR_RETURN(const FieldSpellings spellings, TakeOtherFields(kDetokenizeRequest, json));
  const JsonReader fields = ReadFields(json);
  DetokenizeRequest request;
  ReadDetokenize(fields, request);
  RETURN_IF_ERROR(spellings.Apply(fields.status()));
  request.unknown_fields = spellings.Ignored(fields.Unread());
  return request;
}

std::vector<std::string> KnownTokenizeFields() {
  TokenizeRequest request;
  return NamesReadBy([&](const JsonReader& fields) { ReadTokenize(fields, {}, request); });
}

std::vector<std::string> KnownDetokenizeFields() {
  DetokenizeRequest request;
  return NamesReadBy([&](const JsonReader& fields) { ReadDetokenize(fields, request); });
}

std::string FormatTokens(const TokenizedPrompt& prompt, int32_t max_context,
                         const std::optional<std::vector<std::string>>& pieces) {
  const std::vector<int32_t>& tokens = prompt.tokens;
  // Written piece by piece: a tree of JSON values for millions of tokens would take gigabytes.
  std::string json =
      fmt::format("{{\"count\":{},\"max_model_len\":{},\"tokens\":[", tokens.size(), max_context);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) json += ',';
    json += std::to_string(tokens[i]);
  }
  json += ']';
  for (size_t i = 0; i < prompt.images.size(); ++i) {
    json += fmt::format("{}{{\"position\":{},\"count\":{}}}", i == 0 ? ",\"images\":[" : ",",
                        prompt.images[i].position, prompt.images[i].num_tokens);
  }
  if (!prompt.images.empty()) json += ']';
  if (pieces) {
    json += ",\"pieces\":[";
    for (size_t i = 0; i < pieces->size(); ++i) {
      const std::string& piece = (*pieces)[i];
      nlohmann::ordered_json bytes = nlohmann::ordered_json::array();
      for (const char c : piece) bytes.push_back(static_cast<uint8_t>(c));
      if (i > 0) json += ',';
      json += DumpJson({{"id", tokens[i]}, {"text", piece}, {"bytes", std::move(bytes)}});
    }
    json += ']';
  }
  json += '}';
  return json;
}

std::string FormatText(const std::string& text) { return DumpJson({{"text", text}}); }

}  // namespace tokamak
